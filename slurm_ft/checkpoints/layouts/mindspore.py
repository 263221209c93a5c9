"""MindSpore: `{prefix}-{epoch}_{step in epoch}.ckpt`, after a restart `{prefix}_{restarts}-{epoch}_{step}.ckpt`.

The epoch in the name begins at 1 again after each restart, so the order is restart, epoch, step; the true counters are
in the file, as parameters. In parallel mode each rank has a directory of its own, `rank_<r>`. A file is written as
`.tmp` and renamed (mindspore/train/callback/_checkpoint.py, train/serialization.py); what a cut between two parameters
leaves loads without an error, so the neighbours' parameters are compared.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..finding import Finding, Level, Verdict, incomplete
from ..formats.mindspore import parameters_of, read_integer
from ..layout import Layout, Part, State
from .neighbours import neighbours

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ..files import Files
    from ..formats.mindspore import Parameter

ENTRY = re.compile(
    r"(?P<prefix>.+?)(?:_(?P<restart>[0-9]{1,9}))?-(?P<epoch>[0-9]{1,9})_(?P<batch>[0-9]{1,9})(?:_breakpoint)?\.ckpt"
)
RANK = re.compile(r"rank_[0-9]+")
COUNTERS = ("step_num", "global_step")  # append_info's, and the optimizer's own
MOMENTS = ("moments.", "moment1.", "moment2.", "accum.", "velocity.")


def step(files: Files) -> int | None:
    """Return the optimizer steps so far; as if every save were at the end of an epoch if the file does not tell."""
    parameters = parameters_of(files.path)
    counted = (read_integer(files.path, parameters, name) for name in COUNTERS)
    match = ENTRY.fullmatch(files.name)
    named = int(match["epoch"]) * int(match["batch"]) if match else None
    return next((count for count in counted if count is not None), named)


def order(files: Files, _step: int) -> tuple[float, ...]:
    """Restart, epoch, step in the epoch."""
    match = ENTRY.fullmatch(files.name)
    return tuple(float(match[group] or 0) for group in ("restart", "epoch", "batch")) if match else (0.0, 0.0, 0.0)


def check(files: Files, level: Level) -> Iterator[Finding]:
    """As many parameters as its neighbour has, an optimizer among them, and the same file of each rank."""
    if level is Level.QUICK:
        return
    parameters = parameters_of(files.path)
    if not parameters:
        return
    yield from _fewer_than_neighbour(files.path, parameters)
    if not _has_optimizer(parameters):
        yield Finding(Verdict.WEIGHTS_ONLY, "it has a model but no optimizer")
    yield from _ranks(files.path)


def _fewer_than_neighbour(path: Path, parameters: Sequence[Parameter]) -> Iterator[Finding]:
    names = {parameter.name for parameter in parameters}
    for neighbour in neighbours(path, ENTRY):
        missing = [one.name for one in parameters_of(neighbour) if one.name not in names]
        if missing:
            yield incomplete(f"truncated between two parameters: {missing[0]} is missing, {neighbour.name} has it")
            return


def _has_optimizer(parameters: Sequence[Parameter]) -> bool:
    return any(one.name == "global_step" or one.name.startswith(MOMENTS) for one in parameters)


def _ranks(path: Path) -> Iterator[Finding]:
    if not RANK.fullmatch(path.parent.name):
        return
    for rank in sorted(path.parent.parent.glob("rank_*")):
        if RANK.fullmatch(rank.name) and not parameters_of(rank / path.name):
            yield incomplete(f"{rank.name} has no whole {path.name}")


def world_size(files: Files) -> int | None:
    """Return how many rank directories there are."""
    parent = files.path.parent
    return sum(1 for _ in parent.parent.glob("rank_*")) if RANK.fullmatch(parent.name) else None


def states(files: Files) -> Iterator[tuple[State, str]]:
    """Return what the parameters' names tell."""
    parameters = parameters_of(files.path)
    names = {parameter.name for parameter in parameters}
    if _has_optimizer(parameters):
        yield State.OPTIMIZER, files.name
    if names & {"epoch_num", *COUNTERS}:
        yield State.STEP, files.name
    if "learning_rate" in names:
        yield State.SCHEDULER, "learning_rate"


MINDSPORE = Layout(
    name="mindspore",
    title="MindSpore",
    entry=ENTRY,
    is_file=True,
    places=(".", "rank_0"),
    parts=(Part(state=State.MODEL, files=("*.ckpt",)),),
    recognise=lambda files: not files.is_file or bool(ENTRY.fullmatch(files.name)),
    step=step,
    order=order,
    world_size=world_size,
    same_world=True,
    check=check,
    states=states,
    weights_suffice=True,
)

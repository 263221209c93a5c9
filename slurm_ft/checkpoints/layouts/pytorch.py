"""Plain PyTorch: one `torch.save` file per checkpoint, named as scripts do.

`ckpt_{N}.pth`, `model_epoch_10.pth`, `checkpoint_20260131_235959.pt` and "latest" files. N counts steps or epochs,
whatever the script counts; a file without a number is asked for its step. `ckpt_best_{N}.pth` and the like are copies
for evaluation, not places to resume from.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..finding import Finding, Level, Verdict
from ..formats.torch_file import read_torch_object
from ..layout import Layout, Part, State
from ..states import states_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import Files

ENTRY = re.compile(
    r"(?:(?:ckpt|checkpoint|model|epoch|step|iter|state)(?:[_-](?:epoch|step|iter))?[_-]?(?P<step>[0-9]+)"
    r"|checkpoint_(?P<stamp>[0-9]{8}_[0-9]{6})"
    r"|(?:(?:ckpt|checkpoint|model)[_-])?(?:last|latest)|checkpoint)"
    r"\.(?:pth|pt|pth\.tar)"
)
STEP_KEYS = ("global_step", "step", "iteration", "steps", "epoch")


def step(files: Files) -> int | None:
    """Return the step inside, for a name without one; None if the file does not tell."""
    match = ENTRY.fullmatch(files.name)
    if match is None or match["step"]:
        return None
    tree = read_torch_object(files.path)
    found = (tree[key] for key in STEP_KEYS if isinstance(tree, dict) and isinstance(tree.get(key), int))
    return next(found, None)


def order(files: Files, step: int) -> tuple[float, ...]:
    """A time stamp in the name orders by itself: the step inside may be an epoch."""
    match = ENTRY.fullmatch(files.name)
    stamp = match["stamp"] if match else None
    return (float(stamp.replace("_", "")) if stamp else float(step),)


def check(files: Files, level: Level) -> Iterator[Finding]:
    """A model without an optimizer is weights only; what cannot be followed, such as a whole module, is not judged."""
    if level is Level.QUICK:
        return
    states = dict(states_in(read_torch_object(files.path)))
    if State.MODEL in states and State.OPTIMIZER not in states:
        yield Finding(Verdict.WEIGHTS_ONLY, "it has a model but no optimizer")


PYTORCH = Layout(
    name="pytorch",
    title="PyTorch",
    entry=ENTRY,
    is_file=True,
    parts=(Part(state=State.MODEL, files=("*",)),),
    step=step,
    order=order,
    check=check,
    weights_suffice=True,
)

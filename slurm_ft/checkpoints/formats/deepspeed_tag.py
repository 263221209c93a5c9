"""A DeepSpeed tag directory: one model file per model-parallel rank, one optimizer file per data-parallel rank of each.

File names alone miss a lost last rank, so the world size is read from inside a model file: `dp_world_size`,
`mp_world_size` and the ZeRO stage in `ds_config` (deepspeed/runtime/engine.py, `_save_checkpoint`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..finding import Finding, Level, incomplete, inconsistent
from .source import Checked
from .torch_file import read_torch_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import Files

MODEL = re.compile(r"(?:zero_pp_rank_(?P<dp>\d+)_)?mp_rank_(?P<mp>\d+)_model_states\.pt")
OPTIMIZER = re.compile(r"(?:\w+_)?zero_pp_rank_(?P<dp>\d+)_mp_rank_(?P<mp>\d+)_optim_states\.pt")

MOST_RANKS = 1 << 20  # of which a set is built


@dataclass(frozen=True, slots=True)
class World:
    """What a model file says about the job that wrote it."""

    data_parallel: int
    model_parallel: int
    zero_stage: int
    step: int | None


def check_deepspeed_tags(files: Files, level: Level) -> Iterator[tuple[str, Checked]]:
    """Judge every tag directory of the checkpoint."""
    for directory, names in files.by_directory.items():
        models = [match for name in names if (match := MODEL.fullmatch(name))]
        optimizers = [match for name in names if (match := OPTIMIZER.fullmatch(name))]
        if models or optimizers:
            yield directory, Checked(tuple(_check(files, directory, models, optimizers, level)))


def read_world(files: Files, directory: str) -> World | None:
    """Return what the first model file of a tag says; None if none can be followed. Raises OSError."""
    prefix = f"{directory}/" if directory else ""
    for name in files.by_directory.get(directory, ()):
        if MODEL.fullmatch(name):
            return _world(read_torch_object(files.location(prefix + name)))
    return None


def _world(tree: Any) -> World | None:
    if not isinstance(tree, dict):
        return None
    config = tree.get("ds_config")
    zero = config.get("zero_optimization") if isinstance(config, dict) else None
    stage = zero.get("stage") if isinstance(zero, dict) else None
    data, model, step = (_number(tree.get(key)) for key in ("dp_world_size", "mp_world_size", "global_steps"))
    return World(data, model, _number(stage) or 0, step) if data and model and data * model < MOST_RANKS else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _check(
    files: Files, directory: str, models: list[re.Match[str]], optimizers: list[re.Match[str]], level: Level
) -> Iterator[Finding]:
    if not models:
        yield incomplete("no *_model_states.pt")
        return
    yield from _gaps("model", [match["mp"] for match in models])
    yield from _gaps("optimizer", [match["dp"] for match in optimizers])
    world = read_world(files, directory) if level > Level.QUICK else None
    if world is not None:
        yield from _against(world, models, optimizers)


def _gaps(kind: str, found: list[str]) -> Iterator[Finding]:
    ranks = {int(rank) for rank in found}
    if max(ranks, default=0) >= MOST_RANKS:
        yield inconsistent(f"a {kind} file of rank {max(ranks)}: there is no such rank")
        return
    missing = set(range(max(ranks, default=-1) + 1)) - ranks
    if missing:
        yield incomplete(f"the {kind} file of rank {min(missing)} is missing")


def _against(world: World, models: list[re.Match[str]], optimizers: list[re.Match[str]]) -> Iterator[Finding]:
    """Compare with what the job that saved had: every rank of a ZeRO stage writes its own optimizer file."""
    if world.zero_stage >= 1:
        have = {(int(match["dp"]), int(match["mp"])) for match in optimizers}
        yield from _ranks("optimizer", have, world.data_parallel, world.model_parallel)
    if world.zero_stage >= 3:
        have = {(int(match["dp"]), int(match["mp"])) for match in models if match["dp"]}
        yield from _ranks("model", have, world.data_parallel, world.model_parallel)
    else:
        yield from _ranks("model", {(0, int(match["mp"])) for match in models}, 1, world.model_parallel)


def _ranks(kind: str, have: set[tuple[int, int]], data: int, model: int) -> Iterator[Finding]:
    want = {(dp, mp) for dp in range(data) for mp in range(model)}
    if want - have:
        yield incomplete(
            f"{len(want - have)} of {len(want)} {kind} files are missing, the first of rank {min(want - have)[0]}"
        )
    elif have - want:
        yield inconsistent(f"{len(have)} {kind} files of a job with {len(want)} ranks: they are of different saves")

"""Megatron-LM and what is built on it, such as MindSpeed-LLM: `--save/iter_{:07d}/` and a tracker file beside it.

Two formats share the names. `torch` (legacy): `mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt` for each model parallel rank,
and `distrib_optim.pt` with the distributed optimizer. `torch_dist`: a DCP directory with `metadata.json` written last.

Rank 0 writes the tracker in place, so a kill leaves it empty: Megatron then ends with exit code 0. Without it, training
begins with random weights. `--ckpt-step` is wrong for the legacy format: it reads the optimizer of the tracker's step
all the same. So the tracker is what is set (megatron/training/checkpointing.py).

With `--non-persistent-ckpt-type global` more frequent ones lie in `non_persistent/`, with a tracker of their own.
Megatron takes what that names unless the main tracker names a higher iteration.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..finding import Finding, Level, Verdict, incomplete
from ..formats.dcp import METADATA, read_metadata
from ..formats.stub_pickle import OpaqueError, Stub
from ..formats.torch_file import read_torch_object
from ..layout import Layout, OwnLatest, Part, ResumeBy, ResumePoint, State, Tracker
from ..states import states_in
from .neighbours import parts_beside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import Files

ENTRY = re.compile(r"iter_(?P<step>[0-9]{7,18})")
RANK = re.compile(r"mp_rank_\d+(?:_\d+)*")
MODEL, OPTIMIZER = "model_optim_rng.pt", "distrib_optim.pt"
NON_PERSISTENT = "non_persistent"
COMMON, FINISHED = "common.pt", "metadata.json"
MOST_RANKS = 100_000


def _is_legacy(files: Files) -> bool:
    return files.has("mp_rank_*/*")


def _common(files: Files) -> Any:
    """The state that all ranks share: iteration, arguments, the learning rate's scheduler."""
    name = next(iter(files.matching(f"mp_rank_*/{MODEL}")), COMMON)
    return read_torch_object(files.location(name)) if name in files.entries else None


def _argument(common: Any, name: str) -> Any:
    arguments = common.get("args") if isinstance(common, dict) else None
    return arguments.get(name) if isinstance(arguments, Stub) else None


def step(files: Files) -> int | None:
    """Return `iteration`; the newest Megatron keeps it among the shards, where it is not looked for."""
    common = _common(files)
    found = common.get("iteration") if isinstance(common, dict) else None
    return found if isinstance(found, int) else None


def world_size(files: Files) -> int | None:
    """Return the ranks of the run that saved it, for the legacy format; torch_dist may be loaded by any number."""
    found = _argument(_common(files), "world_size") if _is_legacy(files) else None
    return found if isinstance(found, int) else None


def check(files: Files, level: Level) -> Iterator[Finding]:
    """Judge by the rules of its format."""
    if _is_legacy(files):
        yield from _legacy(files, level)
    else:
        yield from _dist(files, level)


def _legacy(files: Files, level: Level) -> Iterator[Finding]:
    common = _common(files) if level > Level.QUICK else None
    present = {name.partition("/")[0] for name in files.names}
    beside = {name for name in parts_beside(files.path, ENTRY) if RANK.fullmatch(name)}
    ranks = (expected_ranks(common) or beside) | {name for name in present if RANK.fullmatch(name)}
    optimizer = files.has(f"mp_rank_*/{OPTIMIZER}") or bool(_argument(common, "use_distributed_optimizer"))
    saved = not _argument(common, "no_save_optim")
    if isinstance(common, dict) and not saved:
        yield Finding(Verdict.WEIGHTS_ONLY, "saved with --no-save-optim: it has no optimizer")
    for rank in sorted(ranks):
        wanted = (MODEL, OPTIMIZER) if optimizer and saved else (MODEL,)
        missing = next((name for name in wanted if f"{rank}/{name}" not in files.entries), None)
        if missing:
            yield incomplete(f"{rank}/{missing}: missing")
            return


def expected_ranks(common: Any) -> set[str]:
    """Return the directories that a run with these arguments writes; none if they are not there."""
    sizes = [_argument(common, f"{kind}_model_parallel_size") for kind in ("tensor", "pipeline", "expert")]
    tensor, pipeline, expert = (size if isinstance(size, int) and size > 0 else 1 for size in sizes)
    if not isinstance(sizes[0], int) or tensor * pipeline * expert > MOST_RANKS:
        return set()
    return {
        f"mp_rank_{t:02d}" + (f"_{p:03d}" if pipeline > 1 else "") + (f"_{e:03d}" if expert > 1 else "")
        for t in range(tensor)
        for p in range(pipeline)
        for e in range(expert)
    }


def _dist(files: Files, level: Level) -> Iterator[Finding]:
    """DCP's own rules are checked for every layout; left are the last file, and whether an optimizer is in it."""
    beside = parts_beside(files.path, ENTRY)
    if not files.has(FINISHED) and (files.has(COMMON) or FINISHED in beside):
        yield incomplete(f"{FINISHED}: missing: it is written last")
    if not files.has(COMMON) and COMMON in beside:  # the newest Megatron has none
        yield incomplete(f"{COMMON}: missing, and a neighbour has it")
    names = _saved_names(files) if level > Level.QUICK else ()
    if names and not any("optimizer" in name for name in names):
        yield Finding(Verdict.WEIGHTS_ONLY, "saved with --no-save-optim: it has no optimizer")


def _saved_names(files: Files) -> tuple[str, ...]:
    try:
        return read_metadata(files.read_bytes(METADATA) or b"").names
    except OpaqueError:
        return ()


def states(files: Files) -> Iterator[tuple[State, str]]:
    """Return what the common state and DCP's metadata tell."""
    names = _saved_names(files)
    where = METADATA if names else MODEL
    yield from ((state, where if _is_legacy(files) else COMMON) for state, _ in states_in(_common(files)))
    if any("optimizer" in name for name in names):
        yield State.OPTIMIZER, METADATA
    if any("rng_state" in name for name in names):
        yield State.RNG, METADATA


def resume(point: ResumePoint) -> ResumeBy:
    """Megatron loads what the trackers in `--load` and below it name."""
    parent = point.path.parent
    return ResumeBy(arguments=("--load", str(parent.parent if parent.name == NON_PERSISTENT else parent)))


MEGATRON = Layout(
    name="megatron",
    title="Megatron-LM",
    entry=ENTRY,
    places=(".", NON_PERSISTENT),
    parts=(Part(state=State.MODEL, files=(METADATA, "*.distcp", f"mp_rank_*/{MODEL}")),),
    recognise=lambda files: files.has("mp_rank_*/*", "*.distcp", METADATA, COMMON) or not files.entries,
    step=step,
    world_size=world_size,
    same_world=True,
    check=check,
    states=states,
    own_latest=OwnLatest.TRACKER,
    trackers=(Tracker("latest_checkpointed_iteration.txt", lambda point: str(point.step)),),
    resume=resume,
)

# Huawei's distribution of it writes and reads the same tree.
MINDSPEED = replace(MEGATRON, name="mindspeed", title="MindSpeed-LLM")

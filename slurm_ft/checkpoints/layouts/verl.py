"""VeRL: `default_local_dir/global_step_N/` with a directory for each role (PPO), or with the files themselves (SFT).

The FSDP backend writes three files for each of N ranks, and N is in their names; then the driver writes the data
loader's state and, in place, the tracker. With `async_save` it never writes the tracker (#7952); an empty one ends the
next start with a ValueError, and one that names a missing directory starts training from scratch without an error.
The Megatron backend writes `ckpt_contents.json` last (verl/utils/checkpoint/, verl/trainer/ppo/ray_trainer.py).
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from ..finding import Finding, Level, incomplete, inconsistent
from ..layout import Layout, Need, OwnLatest, Part, ResumeBy, ResumePoint, State, Tracker
from .neighbours import parts_beside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import Files

ENTRY = re.compile(r"global_steps?_(?P<step>[0-9]{1,18})")
SHARD = re.compile(
    r"(?P<role>(?:[^/]+/)*)(?P<kind>model|optim|extra_state)_world_size_(?P<of>\d+)_rank_(?P<rank>\d+)\.pt"
)
DATA = re.compile(r"data(?:_\d+)?\.pt")
CONTENTS = "ckpt_contents.json"
PLAIN_VALUE = re.compile(r"[A-Za-z0-9_./:@%+-]+")  # what Hydra reads as it is


def check(files: Files, level: Level) -> Iterator[Finding]:
    """Every rank's files for each role, and the roles and data that the neighbours have."""
    yield from _shards(files)
    yield from _megatron(files)
    if level > Level.QUICK:
        yield from _worlds(files)
    present = {name.partition("/")[0] for name in files.names}
    expected = {name for name in parts_beside(files.path, ENTRY) if "." not in name or DATA.fullmatch(name)}
    for name in sorted(expected - present):
        yield incomplete(f"{name}: missing, and a neighbour has it")


def _shards(files: Files) -> Iterator[Finding]:
    found: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for name in files.names:
        if match := SHARD.fullmatch(name):
            found[match["role"], match["kind"], int(match["of"])].add(int(match["rank"]))
    kinds = {kind for _, kind, _ in found}
    for role in sorted({role for role, _, _ in found}):
        worlds = {world for one, _, world in found if one == role}
        if len(worlds) > 1:
            yield inconsistent(f"{role}: files of {' and '.join(map(str, sorted(worlds)))} ranks")
            continue
        for kind in sorted(kinds):
            world = next(iter(worlds))
            ranks = found.get((role, kind, world), set())
            if len(ranks) < world:
                yield incomplete(f"{role}{kind}: {len(ranks)} ranks where {world} saved")


def _megatron(files: Files) -> Iterator[Finding]:
    """The second version of its Megatron layout has a file that is written last."""
    roles = {name.partition("model/dist_ckpt/")[0] for name in files.matching("*model/dist_ckpt/*")}
    for role in sorted(roles):
        if not files.has(role + CONTENTS):
            yield incomplete(f"{role}{CONTENTS}: missing: it is written last")


def _worlds(files: Files) -> Iterator[Finding]:
    for name in files.matching("*fsdp_config.json"):
        config = files.read_json(name)
        told = config.get("world_size") if isinstance(config, dict) else None
        world = world_size(files)
        if isinstance(told, int) and world and told != world:
            yield inconsistent(f"{name}: it says {told} ranks, the files' names {world}")


def world_size(files: Files) -> int | None:
    """Return N of the files' names; a Megatron checkpoint may be loaded by any other number."""
    return next((int(match["of"]) for name in files.names if (match := SHARD.fullmatch(name))), None)


def resume(point: ResumePoint) -> ResumeBy:
    """Two Hydra overrides. No slash at the end: VeRL takes the step from what follows `global_step_`."""
    path = str(point.path)
    value = path if PLAIN_VALUE.fullmatch(path) else "'" + path.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return ResumeBy(arguments=("trainer.resume_mode=resume_path", f"trainer.resume_from_path={value}"))


VERL = Layout(
    name="verl",
    title="VeRL",
    entry=ENTRY,
    parts=(
        Part(state=State.MODEL, files=("*model_world_size_*.pt", "*dist_ckpt/.metadata", "*.distcp")),
        Part(state=State.OPTIMIZER, files=("*optim_world_size_*.pt", "*dist_ckpt/.metadata")),
        Part(state=State.STEP, files=("*",)),  # VeRL reads it from the directory's name
        Part(
            state=State.SCHEDULER,
            files=("*extra_state_world_size_*.pt", "*extra/dist_ckpt/*", "*dist_ckpt/common.pt"),
            need=Need.EXPECTED,
        ),
        Part(state=State.RNG, files=("*extra_state_world_size_*.pt", "*extra/dist_ckpt/*"), need=Need.OPTIONAL),
        Part(state=State.SAMPLER, files=("data.pt", "data_*.pt"), need=Need.EXPECTED),
    ),
    recognise=lambda files: files.has("*_world_size_*_rank_*.pt", "*dist_ckpt/*", "*fsdp_config.json"),
    world_size=world_size,
    same_world=True,
    check=check,
    own_latest=OwnLatest.TRACKER,
    trackers=(Tracker("latest_checkpointed_iteration.txt", lambda point: str(point.step)),),
    resume=resume,
)

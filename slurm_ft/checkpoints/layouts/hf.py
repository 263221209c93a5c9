"""transformers Trainer, and whatever is built on it: plain, DDP, PEFT, with DeepSpeed or FSDP inside.

`output_dir/checkpoint-<global_step>`; the concurrent engine writes the same below `concurrent_checkpoint/`.
`trainer_state.json` is rank 0's last file, not the job's last: no barrier follows it, so its presence alone proves
nothing. `get_last_checkpoint` takes the highest number, broken or not, and rotation sorts by modification time
(transformers/trainer.py, trainer_utils.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..finding import Finding, Level, incomplete
from ..formats.deepspeed_tag import read_world
from ..layout import Layout, Need, OwnLatest, Part, ResumeBy, ResumePoint, State
from ..manifest import COMMITTED
from ..model_config import check_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import Files

TRAINER_STATE = "trainer_state.json"
CONCURRENT = "concurrent_checkpoint"  # where the engine saves, below the output directory
DEEPSPEED_TAG = re.compile(r"(?P<tag>global_step\d+)/.*_states\.pt")
MODEL = (
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
    "adapter_model.safetensors", "adapter_model.bin", "*/adapter_model.safetensors",
    "pytorch_model_fsdp_0/.metadata", "pytorch_model_fsdp*.bin", "global_step*/*_model_states.pt",
)  # fmt: skip
OPTIMIZER = (
    "optimizer.pt", "optimizer.bin", "optimizer_0/.metadata", "optimizer_*_rank*.bin",
    "global_step*/*_optim_states.pt", "global_step*/mp_rank_*_model_states.pt",
)  # fmt: skip


def step(files: Files) -> int | None:
    """Return `global_step` of trainer_state.json."""
    state = files.read_json(TRAINER_STATE)
    found = state.get("global_step") if isinstance(state, dict) else None
    return found if isinstance(found, int) else None


def world_size(files: Files) -> int | None:
    """Return how many ranks saved, if DeepSpeed tells; the others can go on with another number of ranks."""
    tag = _tag(files)
    world = read_world(files, tag) if tag else None
    return world.data_parallel * world.model_parallel if world else None


def _tag(files: Files) -> str | None:
    return next((match["tag"] for name in files.names if (match := DEEPSPEED_TAG.fullmatch(name))), None)


def check(files: Files, level: Level) -> Iterator[Finding]:
    """DeepSpeed's `latest` has to name a tag that is there; an adapter needs its configuration.

    The concurrent engine's directory holds nothing whole without its marker.
    """
    if files.path.parent.name == CONCURRENT and not files.has(COMMITTED):
        yield incomplete(f"not committed: {COMMITTED} is missing")
    if _tag(files):
        latest = files.read_text("latest")
        if not latest or latest not in files.by_directory:
            yield incomplete(
                f"latest: DeepSpeed's tag {latest!r} is not there" if latest else "latest: missing or empty"
            )
    if files.has("adapter_model.*") and not files.has("adapter_config.json"):
        yield incomplete("adapter_config.json: missing")
    if level > Level.QUICK:
        yield from check_config(files)


def states(files: Files) -> Iterator[tuple[State, str]]:
    """What trainer_state.json carries, and what DeepSpeed keeps in its own files."""
    state = files.read_json(TRAINER_STATE)
    if isinstance(state, dict):
        yield State.SAMPLER, f"{TRAINER_STATE} (the batches are skipped again)"
        if state.get("stateful_callbacks"):
            yield State.CUSTOM, TRAINER_STATE


def resume(point: ResumePoint) -> ResumeBy:
    """Hand the path over; scripts that read CKPT_LAST_STEP need nothing more."""
    return ResumeBy(arguments=("--resume_from_checkpoint", str(point.path)))


HF = Layout(
    name="hf",
    title="transformers Trainer",
    entry=re.compile(r"checkpoint-(?P<step>[0-9]+)"),
    places=(".", CONCURRENT),
    parts=(
        Part(state=State.MODEL, files=MODEL),
        Part(state=State.OPTIMIZER, files=OPTIMIZER),
        Part(state=State.SCHEDULER, files=("scheduler.pt", "global_step*/*_model_states.pt")),
        Part(state=State.SCALER, files=("scaler.pt", "global_step*/*_optim_states.pt"), need=Need.OPTIONAL),
        Part(
            state=State.RNG,
            files=("rng_state.pth", "rng_state_*.pth"),
            need=Need.EXPECTED,
            ranks=re.compile(r"^rng_state_(?P<rank>\d+)\.pth$"),
        ),
        Part(state=State.STEP, files=(TRAINER_STATE,)),
    ),
    marker=TRAINER_STATE,
    unfinished=("checkpoint-is-incomplete.txt",),
    recognise=lambda files: files.has(TRAINER_STATE, *MODEL, *OPTIMIZER),
    step=step,
    world_size=world_size,
    same_world=True,
    check=check,
    states=states,
    own_latest=OwnLatest.NUMBER,
    resume=resume,
)

"""Accelerate: `save_state()` writes `project_dir/checkpoints/checkpoint_<i>`, or a directory that the script names.

`i` counts saves, and the counter is forgotten on resume: the newest state may be written as `checkpoint_0` while an
older, higher number stays (accelerate #1601, #3306). So the order is the modification time of the files that every
rank writes last, `random_states_<rank>.pkl`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..layout import Layout, Need, OwnLatest, Part, ResumeBy, ResumePoint, State

if TYPE_CHECKING:
    from ..files import Files

RANDOM_STATES = "random_states_*.pkl"
MODEL = (
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
    "pytorch_model_fsdp_0/.metadata", "pytorch_model_fsdp*.bin", "pytorch_model/*_model_states.pt",
)  # fmt: skip
OPTIMIZER = (
    "optimizer.bin", "optimizer_0/.metadata", "optimizer_0*.bin", "pytorch_model/*_optim_states.pt",
    "pytorch_model/mp_rank_*_model_states.pt",
)  # fmt: skip


def order(files: Files, _step: int) -> tuple[float, ...]:
    """Return when the last rank wrote its random states; a directory without any by its newest file."""
    times = [files.mtime(name) for name in files.matching(RANDOM_STATES)]
    return (max(times, default=files.newest_mtime),)


def resume(point: ResumePoint) -> ResumeBy:
    """The scripts of accelerate's examples take the directory as an argument."""
    return ResumeBy(arguments=("--resume_from_checkpoint", str(point.path)))


ACCELERATE = Layout(
    name="accelerate",
    title="Accelerate",
    entry=re.compile(r"(?:checkpoint|step|epoch)_(?P<step>[0-9]+)|(?![.])(?!checkpoints$).*"),
    places=(".", "checkpoints"),
    parts=(
        Part(state=State.MODEL, files=MODEL),
        Part(state=State.OPTIMIZER, files=OPTIMIZER),
        Part(state=State.SCHEDULER, files=("scheduler*.bin", "pytorch_model/*_model_states.pt"), need=Need.EXPECTED),
        Part(state=State.SCALER, files=("scaler.pt",), need=Need.OPTIONAL),
        Part(
            state=State.RNG,
            files=(RANDOM_STATES,),
            ranks=re.compile(r"random_states_(?P<rank>\d+)\.pkl$"),
        ),
        Part(state=State.STEP, files=(RANDOM_STATES,)),
        Part(state=State.SAMPLER, files=("sampler*.bin", "dl_state_dict*.bin"), need=Need.EXPECTED),
        Part(state=State.CUSTOM, files=("custom_checkpoint_*.pkl",), need=Need.EXPECTED),
    ),
    recognise=lambda files: files.has(RANDOM_STATES),
    order=order,
    own_latest=OwnLatest.NUMBER,
    resume=resume,
)

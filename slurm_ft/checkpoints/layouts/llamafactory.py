"""LLaMA-Factory: the Trainer's layout, and its version 1 with one of its own.

It resumes from `resume_from_checkpoint`, in its YAML or as `resume_from_checkpoint=PATH` behind it. Without, and with
`overwrite_output_dir: false`, it takes the highest number, broken or not; with `true`, as in all its examples, it
starts from scratch. Version 1 writes the empty file CHECKPOINT_COMPLETE last, takes the newest that has it, and deletes
those without at the next rotation (llamafactory/hparams/parser.py, llamafactory/v1/core/utils/checkpoint.py).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ..layout import Layout, Need, OwnLatest, Part, ResumeBy, ResumePoint, State
from .hf import HF

if TYPE_CHECKING:
    from ..files import Files

LOG = "trainer_log.jsonl"
MARKER, METADATA = "CHECKPOINT_COMPLETE", "metadata.json"
RANK = re.compile(r"rank_(?P<rank>\d+)\.pt$")


def step_of_v1(files: Files) -> int | None:
    """Return `global_step` of metadata.json."""
    content = files.read_json(METADATA)
    found = content.get("global_step") if isinstance(content, dict) else None
    return found if isinstance(found, int) else None


def resume(point: ResumePoint) -> ResumeBy:
    """An override behind the YAML file. `slurm-ft run` makes a copy of the YAML instead."""
    return ResumeBy(arguments=(f"resume_from_checkpoint={point.path}",))


LLAMAFACTORY = replace(
    HF,
    name="llamafactory",
    title="LLaMA-Factory",
    recognise=lambda files: (files.path.parent / LOG).is_file() and HF.recognises(files),
    resume=resume,
)

LLAMAFACTORY_V1 = Layout(
    name="llamafactory_v1",
    title="LLaMA-Factory v1",
    entry=HF.entry,
    parts=(
        Part(state=State.MODEL, files=("model/*.safetensors", "model/*.bin", "model/.metadata", "*_model_states.pt")),
        Part(state=State.OPTIMIZER, files=("optimizer/*.pt", "optimizer/.metadata", "*_optim_states.pt")),
        Part(state=State.STEP, files=(METADATA,)),
        Part(state=State.SCHEDULER, files=("scheduler.pt", "*_model_states.pt")),
        Part(state=State.RNG, files=("rng_state/rank_*.pt", "*_model_states.pt"), need=Need.EXPECTED, ranks=RANK),
        Part(state=State.SAMPLER, files=("dataloader/rank_*.pt",), need=Need.EXPECTED, ranks=RANK),
    ),
    marker=MARKER,
    recognise=lambda files: files.has(MARKER, "dataloader/rank_*.pt") and not files.has("trainer_state.json"),
    step=step_of_v1,
    own_latest=OwnLatest.NUMBER,
    resume=resume,
)

"""Which checkpoints a run of another size can load."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from .._checkpoints.files import list_files
from .._checkpoints.manifest import has_manifest, read_manifest
from .resume import ResumeError

log = logging.getLogger("datastates.llm.decorator")

_RNG = re.compile(r"rng_state_([0-9]+)\.pth")


def check(trainer: Any, path: Path, world_size: int) -> None:
    """Raise ResumeError if this run's number of ranks cannot load the checkpoint; warn if that changes the training.

    DeepSpeed's ZeRO states belong to the rank that wrote them. The other modes resume with any number, but with another
    order of the data and other random numbers.
    """
    saved = saved_world_size(path)
    if saved is None or saved == world_size:
        return
    if _needs_same(trainer):
        raise ResumeError(
            f"{path} was saved by {saved} ranks and this run has {world_size}",
            f"DeepSpeed's ZeRO states load with the same number only: start it with {saved}, or convert the checkpoint "
            'with deepspeed\'s ds_to_universal.py and set "checkpoint": {"load_universal": true}',
        )
    log.warning(
        "[Concurrent Checkpoint] %s was saved by %d ranks and this run has %d: random numbers and the order of the "
        "data will differ from a training without the change",
        path,
        saved,
        world_size,
    )


def saved_world_size(path: Path) -> int | None:
    """Return how many ranks saved a checkpoint; None if nothing tells."""
    files = list_files(path, path.parent)
    if has_manifest(files):
        manifest = read_manifest(files)
        return None if manifest is None else manifest.world_size
    if "rng_state.pth" in files.entries:
        return 1
    ranks = [int(match[1]) for match in map(_RNG.fullmatch, files.entries) if match]
    return max(ranks) + 1 if ranks else None


def _needs_same(trainer: Any) -> bool:
    if not trainer.is_deepspeed_enabled:
        return False
    config = trainer.accelerator.state.deepspeed_plugin.deepspeed_config
    stage = config.get("zero_optimization", {}).get("stage", 0)
    return stage != 0 and not config.get("checkpoint", {}).get("load_universal", False)

"""The sensors that are asked about the GPUs of a failed job while the kernel log leaves the question open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slurm_ft.config import Config
from slurm_ft.model import Evidence, JobKey
from slurm_ft.node import nvml_snapshot_hook
from slurm_ft.sensors import dcgm, nvml, nvml_snapshot


@dataclass(frozen=True, slots=True)
class Question:
    """Which GPUs, and of which attempt. `began_s_ago` is in seconds, None if the start is not known.

    `explained`: see nvml_events.compare.
    """

    gpus: frozenset[str]
    key: JobKey
    node: str
    run_dir: Path
    began_s_ago: float | None
    explained: bool


def _nvml(config: Config, question: Question) -> Evidence | None:
    nvml_snapshot_hook.wanted(question.run_dir, config)  # tells the Prologs to come
    if not config.nvml:
        return None
    path = nvml_snapshot.path_of(question.run_dir, question.node, question.key.raw_id)
    before = nvml_snapshot.read(path, question.key.attempt)
    return nvml.read_gpu_state(question.gpus, before, config.nvml_timeout, explained=question.explained)


def _dcgm(config: Config, question: Question) -> Evidence | None:
    if config.dcgm == "off":
        return None
    return dcgm.read_dcgm(config.dcgm, question.gpus, question.began_s_ago, config.dcgm_timeout)


# Each answers with Evidence, or with None if the site has switched it off.
GPU_SENSORS: tuple[Callable[[Config, Question], Evidence | None], ...] = (_nvml, _dcgm)

"""The numbers of an array's task: no node hook is told them (22.05 to 26.05, measured), and a file's name has them."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_ft.config import Config
from slurm_ft.errors import SlurmFtError
from slurm_ft.model import JobKey
from slurm_ft.slurm import environment
from slurm_ft.slurm.cli import CommandLine


def with_task_numbers(environ: Mapping[str, str], config: Config, key: JobKey) -> dict[str, str] | None:
    """`environ` with the numbers that Slurm names when it is asked; None for what is no task, or without an answer."""
    try:
        job = CommandLine.of(config).impatient().job(str(key.raw_id))
    except SlurmFtError:
        return None
    array, _, task = ("" if job is None else job.address).partition("_")
    return {**environ, environment.ARRAY_JOB_ID: array, environment.ARRAY_TASK_ID: task} if task else None

"""The line that opens each attempt in the job's one log, and what Slurm has to be asked for it.

    ==== slurm_ft job 12 attempt 2/4 · restart 1 · node(s) n2 · excluded n1 · resume step 120 · 2026-11-29T15:40:01 ====

Decoration only: whatever Slurm answers, or does not answer, the training starts. `?` stands for what is not known, `-`
for what does not exist. An attempt that was preempted spends no failover: `restart` tells the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm_ft import config, log_marks
from slurm_ft.checkpoints.printable import printable
from slurm_ft.errors import SlurmFtError
from slurm_ft.launch import restart_line
from slurm_ft.slurm import environment
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.environment import restart_of
from slurm_ft.status.view import Failovers, failovers_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from slurm_ft.slurm.protocol import JobRecord

ANSWER_SECONDS = 5.0  # a job's start waits for this


@dataclass(frozen=True, slots=True)
class JobInfo:
    """What Slurm says about the running job."""

    excluded: str  # the whole exclusion as a nodelist expression, the user's own and ours; empty for none
    failovers: Failovers
    comment: str = ""
    again: str = ""  # the line that tells why the job starts again; empty at its first start


def ask_slurm(environ: Mapping[str, str]) -> JobInfo | None:
    """The running job's exclusions and failovers. None outside a job, or when Slurm does not answer in time."""
    if environment.JOB_ID not in environ:
        return None
    try:
        settings = config.load()
        slurm = replace(CommandLine.of(settings), timeout=ANSWER_SECONDS, tries=1)
        address = environment.job_key(environ).address
        job = slurm.job(address)
        return _info(job, slurm, settings, restart_of(environ)) if job else None
    except SlurmFtError:
        return None


def _info(job: JobRecord, slurm: CommandLine, settings: config.Config, restart: int) -> JobInfo:
    again = restart_line.compose(job, settings, restart)
    return JobInfo(slurm.excluded_nodes(job.address), failovers_of(job, (), settings), job.comment, again)


def banner(environ: Mapping[str, str], info: JobInfo | None, resume: str, now: datetime) -> str:
    """Compose the line. `resume` says where training starts, e.g. `step 120`; `now` carries its time zone."""
    parts = (
        f"{environ.get(environment.JOB_ID, '-')} attempt {_attempt(environ, info)}",
        f"restart {restart_of(environ)}",
        f"node(s) {environ.get(environment.NODELIST, '-')}",
        f"excluded {_excluded(environ, info)}",
        f"resume {resume}",
        now.isoformat(timespec="seconds"),
    )
    return log_marks.banner(printable(part) for part in parts)


def _attempt(environ: Mapping[str, str], info: JobInfo | None) -> str:
    if info is None:
        return "?" if environment.JOB_ID in environ else "-"
    failovers = info.failovers
    return f"{failovers.count + 1}/{failovers.limit + 1 if failovers.opted_in else '-'}"


def _excluded(environ: Mapping[str, str], info: JobInfo | None) -> str:
    if info is None:
        return "?" if environment.JOB_ID in environ else "-"
    return info.excluded or "-"

"""The line that opens each attempt in the job's one log, and what Slurm has to be asked for it.

    ==== slurm_ft job 123 attempt 2/4 · node(s) n2 · excluded n1 · resume step 120 · 2026-11-29T15:40:01+00:00 ====

Decoration only: whatever Slurm answers, or does not answer, the training starts. `?` stands for what is not known, `-`
for what does not exist.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_ft.checkpoints.finding import printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

ANSWER_SECONDS = 5.0

# A tag without a number leaves the limit to the site: this many failovers, unless it configured another number.
DOCUMENTED_LIMIT = 3

_TAG = re.compile(r"\[slurm_ft((?: [^\[\]]*)?)\]")
_LIMIT = re.compile(r"(?:n=[0-9]+/|limit=)([0-9]+)")


@dataclass(frozen=True, slots=True)
class JobInfo:
    """What one `squeue` says about the job, as it prints it."""

    excluded: str  # a nodelist expression, empty for none
    comment: str


def limit_of(comment: str) -> int | None:
    """Return the failover limit in a job's comment; None if our tag is missing, or names none."""
    tag = _TAG.search(comment)
    limits = (_LIMIT.fullmatch(word) for word in tag[1].split()) if tag else ()
    return next((int(limit[1]) for limit in limits if limit), None)


def ask_slurm(environ: Mapping[str, str], *, timeout: float = ANSWER_SECONDS) -> JobInfo | None:
    """Ask for this job's excluded nodes and comment. None outside a job, or if no answer came within `timeout` s."""
    squeue = shutil.which("squeue", path=environ.get("PATH"))
    if squeue is None or "SLURM_JOB_ID" not in environ:
        return None
    # Comments are free text: only a delimiter that nobody can know beforehand cannot occur in one.
    delimiter = secrets.token_hex(16)
    command = [squeue, "-h", "-j", _address(environ), "-t", "all", "-o", f"%x{delimiter}%k"]
    try:
        answer = subprocess.run(
            command, env=_plain(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    excluded, found, comment = os.fsdecode(answer.stdout).rstrip("\n").partition(delimiter)
    return JobInfo(_or_empty(excluded), _or_empty(comment)) if found else None


def _address(environ: Mapping[str, str]) -> str:
    """Name one job: the bare id of an array stands for all its tasks."""
    if "SLURM_ARRAY_JOB_ID" in environ and "SLURM_ARRAY_TASK_ID" in environ:
        return f"{environ['SLURM_ARRAY_JOB_ID']}_{environ['SLURM_ARRAY_TASK_ID']}"
    return environ["SLURM_JOB_ID"]


def _plain(environ: Mapping[str, str]) -> dict[str, str]:
    """Drop the user's SQUEUE_* defaults, which would change the answer."""
    return {name: value for name, value in environ.items() if not name.startswith("SQUEUE_")}


def _or_empty(field: str) -> str:
    return "" if field in ("(null)", "N/A") else field


def banner(environ: Mapping[str, str], info: JobInfo | None, resume: str, now: datetime) -> str:
    """Compose the line. `resume` says where training starts, e.g. `step 120`; `now` carries its time zone."""
    job = environ.get("SLURM_JOB_ID", "-")
    nodes = environ.get("SLURM_JOB_NODELIST", "-")
    excluded = "?" if info is None and job != "-" else (info.excluded if info else "") or "-"
    parts = (
        f"slurm_ft job {job} attempt {attempt_of(environ)}/{_attempts(environ, info)}",
        f"node(s) {nodes}",
        f"excluded {excluded}",
        f"resume {resume}",
        now.isoformat(timespec="seconds"),
    )
    return f"==== {' · '.join(printable(part) for part in parts)} ===="


def attempt_of(environ: Mapping[str, str]) -> int:
    """Return the number of this attempt, from 1. Slurm sets the restart count from the second attempt on."""
    count = environ.get("SLURM_RESTART_COUNT", "")
    return int(count) + 1 if count.isdecimal() else 1


def _attempts(environ: Mapping[str, str], info: JobInfo | None) -> str:
    """Return how many attempts failover allows: `-` without our tag, when it is off."""
    if info is None:
        return "?" if "SLURM_JOB_ID" in environ else "-"
    if not _TAG.search(info.comment):
        return "-"
    limit = limit_of(info.comment)
    return str((DOCUMENTED_LIMIT if limit is None else limit) + 1)

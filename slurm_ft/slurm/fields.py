"""What we ask Slurm's commands for, and where its releases answer differently: every difference we know of is here.

The program never asks for a version. It reads each spelling that a release uses (`exit_status`, `reason_name`), and
does without what only some have. The table says which release does what; tests/slurm/test_releases.py holds it
against the Slurm that it runs on, and docs/slurm_versions.md tells how each row was measured and who depends on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

# The names that `squeue -O` and `sinfo -O` know; the same on every release.
JOB_FIELDS = (
    "JobID", "JobArrayID", "Name", "UserName", "Partition", "State", "Reason", "NodeList", "RestartCnt", "Requeue",
    "BatchFlag", "exit_code", "SubmitTime", "StartTime", "EndTime", "STDOUT", "Comment", "admin_comment",
    "BatchHost", "ReqNodes", "Reservation", "NumNodes", "TimeLimit", "Account", "QOS",
)  # fmt: skip
STREAM_FIELDS = ("JobID", "UserID", "STDOUT", "STDERR", "WorkDir")
# StateLong would show a drained node as `drained` whether it is down or not (measured on 22.05).
NODE_FIELDS = ("NodeList", "StateComplete", "Reason", "Comment")

Version = tuple[int, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Difference(Generic[T]):
    """One row: what differs, and what each release does from that release on, oldest first."""

    what: str
    since: tuple[tuple[Version, T], ...]

    def on(self, version: Version) -> T:
        """What this version does; one older than the table is taken for its oldest."""
        value = self.since[0][1]
        for release, newer in self.since:
            if version[:2] >= release:
                value = newer
        return value


# Seconds by which a login node may lag behind the controller. The shortest time limit is 60.
CLOCKS_APART = 30

OLD, TRIXIE, SID = (22, 5), (24, 11), (26, 5)  # the releases that are measured

EXIT_CODE = Difference(
    "`squeue -O exit_code` of a job that ended with exit code 3",
    ((OLD, "768"), (TRIXIE, "3:0")),
)
SIGNAL_REASON = Difference(
    "Reason of a job whose batch script was killed with SIGKILL",
    ((OLD, "JobLaunchFailure"), (TRIXIE, "RaisedSignal:9(Killed)")),
)
STDOUT = Difference(
    "`squeue -O STDOUT` of job 7 with the default output in /home/a",
    ((OLD, "/home/a/slurm-7.out"), (TRIXIE, "/home/a/slurm-%j.out"), (SID, "slurm-%j.out")),
)
NODE_FAILURE_EXIT = Difference(
    "SLURM_JOB_EXIT_CODE2 in EpilogSlurmctld when the job's node went down",
    ((OLD, "0:0"), (TRIXIE, "0:1")),
)
HOOK_TIMES = Difference(
    "SLURM_JOB_START_TIME and SLURM_JOB_END_TIME in the hooks",
    ((OLD, False), (TRIXIE, True)),
)
ATTEMPT_ID = Difference(
    "SLURM_JOB_SLUID in the hooks",
    ((OLD, False), (SID, True)),
)
NODE_HOOK_NODELIST = Difference(
    "SLURM_JOB_NODELIST in the node hooks (SLURM_NODELIST is in all)",
    ((OLD, False), (TRIXIE, True)),
)
RESUME_KEEPS_REASON = Difference(
    "a node that is resumed keeps its Reason until its next job",
    ((OLD, False), (TRIXIE, True), (SID, False)),
)
KNOWS_NOBODY = Difference(
    "squeue and scancel find the jobs of the account `nobody` by its name",
    ((OLD, True), (SID, False)),
)
NO_KILL_OUTLIVES_ITS_SCRIPT = Difference(
    "a job with --no-kill stays RUNNING when the node of its batch script goes down",
    ((OLD, False), (SID, True)),
)
CGROUP_PLUGIN_DISABLED = Difference(
    "cgroup.conf knows CgroupPlugin=disabled, and slurmd needs it where cgroups cannot be written",
    ((OLD, False), ((23, 11), True)),
)
ARRAY_STDOUT = Difference(
    "name in `squeue -O STDOUT` of task 7_2, with the raw id 8 and the default output",
    ((OLD, "slurm-8.out"), (TRIXIE, "slurm-%A_%a.out")),
)
BATCH_STEP = Difference(
    "SLURM_STEP_ID in a batch script and in its TaskProlog",
    ((OLD, ""), (SID, "-5")),
)
ESCAPED_BLANK = Difference(
    "a backslash before a blank keeps it within a word of an #SBATCH line; else sbatch refuses the line",
    ((OLD, False), (TRIXIE, True)),
)
EXPEDITED = Difference(
    "sbatch knows --requeue=expedite, and scontrol shows a job that was given it (EXPEDITED_MARK)",
    ((OLD, False), ((25, 11), True)),
)
EXPEDITED_MARK = "ExpeditedRequeue=Yes"
_LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


def exit_status(text: str) -> tuple[int, int]:
    """Exit code and signal out of the field `exit_code`, however the release writes it (EXIT_CODE)."""
    if ":" in text:
        code, _, signal = text.partition(":")
        return int(code), int(signal)
    status = int(text)  # of wait(2); Slurm itself writes a death by signal 53 as 0:53, whatever the upper bits say
    killed_by = status & 0x7F
    return (0, killed_by) if killed_by else ((status >> 8) & 0xFF, 0)


def end_time(text: str, now: float) -> float | None:
    """When the job ended; None if it has not.

    `EndTime` of a job that runs, or that was requeued and is COMPLETING, is an end to come: its start or the present
    moment plus its time limit, or `NONE` where that is without bound (measured on 22.05, 24.11 and 26.05).
    """
    if not text.isdigit() or float(text) > now + CLOCKS_APART:
        return None
    return float(text)


@lru_cache(maxsize=64)
def seconds(text: str) -> float | None:
    """A time limit as squeue and sacct print it, `1-02:03:04` or `30:00`; None for UNLIMITED and what is no time."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


def count(text: str) -> int:
    """A number of nodes: Slurm writes 2048 as `2K`. Raises ValueError."""
    return int(text[:-1]) * 1024 if text.endswith("K") else int(text)


def reason_name(reason: str) -> str:
    """A job's Reason without its details: `RaisedSignal:9(Killed)` -> `RaisedSignal` (SIGNAL_REASON)."""
    return reason.partition(":")[0]

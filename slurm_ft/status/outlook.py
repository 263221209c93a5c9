"""What happens next with a job, and how to look closer. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from slurm_ft.model import JobState
from slurm_ft.slurm import nodelist
from slurm_ft.status.timeline import UNBEGUN
from slurm_ft.status.view import Failovers, JobView

_SAFE = re.compile(r"[0-9_+]+")


def next_of(view: JobView, held: str = "") -> str:
    """One sentence about what will happen by itself, or what somebody has to do. `held`: why failover is held back."""
    if view.blocked:
        return view.blocked
    return _NEXT[view.state](view, held)


def look_closer(view: JobView) -> str:
    """The commands that show more."""
    address = view.job.address
    name = address if _SAFE.fullmatch(address) else view.job.raw_id
    return f"slurm-ft explain {name}; slurm-ft logs {name}"


def _running(view: JobView, held: str) -> str:
    failovers, job = view.failovers, view.job
    if not failovers.opted_in:
        return "runs to its end; it did not ask for failover ([slurm_ft] in its comment)"
    if not (job.requeue and job.batch):
        return "runs to its end; it cannot be requeued, so it does not fail over (sbatch --requeue)"
    if held:
        return f"runs to its end; it would not fail over now: {held}"
    left = failovers.limit - failovers.count
    if left <= 0:
        return "runs to its end; no failover is left: the next hardware failure ends it"
    return f"runs to its end; if its hardware fails, it starts again elsewhere ({_times(left)} left)"


def _times(left: int) -> str:
    return f"{left} failover{'s' * (left != 1)}"


def _failing_over(view: JobView, held: str) -> str:
    if view.job.state not in UNBEGUN and not _requeued(view):
        return "its nodes are being judged; on a hardware fault it starts again elsewhere within seconds" + _but(held)
    without = f" without {nodelist.fold(view.failovers.excluded)}" if view.failovers.excluded else ""
    return f"starts again{without} as soon as Slurm has nodes for it{_reason(view)}"


def _requeued(view: JobView) -> bool:
    return any(attempt.number == view.job.restarts - 1 for attempt in view.failovers.history.attempts)


def _but(held: str) -> str:
    return f"; not now: {held}" if held else ""


def _pending(view: JobView, _: str) -> str:
    return f"starts as soon as Slurm has nodes for it{_reason(view)}"


def _reason(view: JobView) -> str:
    return f" ({view.job.reason})" if view.job.reason else ""


def _internal_error(view: JobView, _: str) -> str:
    if _had_failovers_to_spend(view):
        return "not retried, although its hardware failed: the last line of `slurm-ft explain` names the rule"
    held = view.job.state in UNBEGUN
    then = "scancel or release it" if held else "submit it again"
    return f"not retried: nothing points at the hardware. Look at its log, mend the program, and {then}"


def _had_failovers_to_spend(view: JobView) -> bool:
    return bool(view.failovers.faults) and view.failovers.count < view.failovers.limit


def _spent(view: JobView, _: str) -> str:
    failovers: Failovers = view.failovers
    if failovers.count < failovers.limit:
        return "not retried: its failovers brought no newer checkpoint. See why it does not save, and submit it again"
    what = f"{failovers.count} of {failovers.limit} failovers are spent"
    return f"not retried: {what}. Submit it again: it resumes from its newest valid checkpoint"


def _failed(view: JobView, _: str) -> str:
    if not view.failovers.opted_in:
        return "not retried: it did not ask for failover. Submit it again, with [slurm_ft] in its comment"
    return "not retried: it cannot be requeued (sbatch --requeue). Submit it again"


def _image(_: JobView, __: str) -> str:
    return "not retried: its container image could not be loaded. Mend its name or the registry, and submit it again"


def _ended(_: JobView, __: str) -> str:
    return "nothing: it has ended"


def _preempted(_: JobView, __: str) -> str:
    return "nothing by slurm_ft: if Slurm requeues it, it resumes, and that spends no failover"


_NEXT: Mapping[JobState, Callable[[JobView, str], str]] = {
    JobState.RUNNING: _running,
    JobState.PENDING: _pending,
    JobState.FAILOVER_IN_PROGRESS: _failing_over,
    JobState.INTERNAL_ERROR: _internal_error,
    JobState.MAX_RETRIES_EXCEEDED: _spent,
    JobState.IMAGE_PULL_BACKOFF: _image,
    JobState.FAILED: _failed,
    JobState.COMPLETED: _ended,
    JobState.CANCELLED: _ended,
    JobState.TIMEOUT: lambda _, __: "nothing: its time was up. Submit it again: it resumes from its newest checkpoint",
    JobState.PREEMPTED: _preempted,
}

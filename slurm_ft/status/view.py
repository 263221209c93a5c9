"""From Slurm's records to what a user sees. Pure.

Slurm refuses every update of a job that ended and was not requeued (measured on 22.05), so the final states cannot be
written into the job: they follow from its end, its ledger, and the verdicts that its nodes carry in their drain Reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from slurm_ft.config import Config
from slurm_ft.failover import blocked, claim, comment_tag, ledger, node_record, restraint, resume_tag
from slurm_ft.failover.policy import NODE_DOWN
from slurm_ft.model import IMAGE_PULL, Domain, JobState, Ledger, NodeVerdict
from slurm_ft.slurm.fields import reason_name
from slurm_ft.slurm.protocol import JobRecord, NodeRecord

_FINAL = {
    "COMPLETED": JobState.COMPLETED,
    "CANCELLED": JobState.CANCELLED,
    "PREEMPTED": JobState.PREEMPTED,
    "TIMEOUT": JobState.TIMEOUT,
    "DEADLINE": JobState.TIMEOUT,
}
_FAILED = ("FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY")
_LOST_NODE = ("NODE_FAIL", "BOOT_FAIL")
# Slurm's reason while a job that failed is COMPLETING. A cancelled one has none, or one from its start (`Prolog`).
_FAILING = ("NonZeroExitCode", "JobLaunchFailure", "RaisedSignal", "NodeDown", "OutOfMemory")


@dataclass(frozen=True, slots=True)
class Failovers:
    """What the job's records say of its failovers. `faults` are the verdicts on its present attempt."""

    opted_in: bool
    count: int  # spent
    limit: int
    excluded: tuple[str, ...]  # by us, not the user's own
    history: Ledger
    faults: tuple[NodeVerdict, ...]
    progress_stop: int = 0  # the site's bound on failovers that bring no newer checkpoint


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as the status command shows it."""

    job: JobRecord
    failovers: Failovers
    state: JobState
    cause: str  # of the last failure; "" if there was none
    blocked: str = ""  # why Slurm cannot start it without somebody's help

    @property
    def resume(self) -> resume_tag.ResumeMark | None:
        """From which step the job says that it resumed. Its user can write anything there."""
        return resume_tag.read(self.job.comment)


def views(jobs: Iterable[JobRecord], nodes: Sequence[NodeRecord], config: Config) -> list[JobView]:
    """The view of each job, in the given order."""
    faults: dict[tuple[int, int], list[NodeVerdict]] = {}
    for node in nodes:
        for fault in _reported(node):
            faults.setdefault((fault.raw_id, fault.attempt), []).append(fault)
    jobs = list(jobs)
    parts: dict[str, list[JobRecord]] = {}  # the components of each het job
    for job in jobs:
        if leader := job.het_leader:
            parts.setdefault(leader, []).append(job)

    def of(job: JobRecord) -> JobView:
        """A component of a het job ends with the others."""
        together = parts.get(job.het_leader, (job,)) if parts else (job,)
        own = [fault for part in together for fault in faults.get((part.raw_id, job.restarts), ())]
        return _view(_with_leaders_records(job, together), own, nodes, config)

    return [of(job) for job in jobs]


def _with_leaders_records(job: JobRecord, parts: Sequence[JobRecord]) -> JobRecord:
    """A het job's tag and ledger are its leader's; Slurm requeues it as a whole."""
    leader = next((part for part in parts if part.het_leader == str(part.raw_id)), None) if len(parts) > 1 else None
    if leader is None:
        return job
    return replace(job, comment=leader.comment, admin_comment=leader.admin_comment)


def _reported(node: NodeRecord) -> tuple[NodeVerdict, ...]:
    """What a node says of ended attempts: hardware faults in a Reason of ours, unloadable images in its Comment."""
    in_reason = node_record.in_reason(node.reason, node.name)
    faults = (verdict for verdict in in_reason if verdict.domain is Domain.HARDWARE)
    images = (verdict for verdict in node_record.read(node.comment, node.name) if verdict.cause == IMAGE_PULL)
    return (*faults, *images)


def _view(job: JobRecord, faults: Sequence[NodeVerdict], nodes: Sequence[NodeRecord], config: Config) -> JobView:
    failovers = failovers_of(job, faults, config)
    why = blocked.why(job, nodes, failovers.excluded) if failovers.opted_in else ""
    return JobView(job, failovers, _state(job, failovers), _cause(job, failovers), why)


def failovers_of(job: JobRecord, faults: Sequence[NodeVerdict], config: Config) -> Failovers:
    """What the job's Comment, its AdminComment and the verdicts of its nodes say."""
    history = ledger.read(job.admin_comment) or Ledger(run_id="")
    tag = comment_tag.read(job.comment) or comment_tag.Tag()
    started = job.started or 0.0
    return Failovers(
        opted_in=claim.opted_in(job, config),
        count=claim.spent(job.comment, job.admin_comment),
        limit=claim.limit(job.comment, config),
        excluded=history.excluded or tag.excluded,
        history=history,
        progress_stop=config.progress_stop,
        # Job ids are reused: a node drained weeks ago may still carry the verdict on a job of the same id.
        faults=tuple(sorted((one for one in faults if one.at >= started), key=lambda one: one.at)) if faults else (),
    )


def _state(job: JobRecord, failovers: Failovers) -> JobState:
    if job.state == "CANCELLED" and _cancelled_by_us(job, failovers):
        return JobState.MAX_RETRIES_EXCEEDED
    if job.state in _FINAL:
        return _FINAL[job.state]
    if job.state in _FAILED:
        return _failed_state(job, failovers)
    if job.state == "COMPLETING":
        return _completing_state(job, failovers)
    if job.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"):
        return _pending_state(job, failovers)
    return JobState.RUNNING


def _pending_state(job: JobRecord, failovers: Failovers) -> JobState:
    if _failing_over(job, failovers):
        return JobState.FAILOVER_IN_PROGRESS
    return JobState.INTERNAL_ERROR if _held_after_its_own_error(job, failovers) else JobState.PENDING


def _failed_state(job: JobRecord, failovers: Failovers) -> JobState:
    if not failovers.opted_in or job.state in _LOST_NODE:  # Slurm requeues those itself where it may
        return JobState.FAILED
    if not failovers.faults:
        return JobState.INTERNAL_ERROR
    if failovers.faults[0].cause == IMAGE_PULL:
        return JobState.IMAGE_PULL_BACKOFF
    if not (job.requeue and job.batch):
        return JobState.FAILED
    stuck = (
        0
        < failovers.progress_stop
        <= restraint.fruitless(failovers.history, restraint.step_of(job.comment, job.restarts))
    )
    spent = failovers.count >= failovers.limit or stuck
    return JobState.MAX_RETRIES_EXCEEDED if spent else JobState.INTERNAL_ERROR


def _completing_state(job: JobRecord, failovers: Failovers) -> JobState:
    if job.ended is None and _failing_over(job, failovers):  # requeued already
        return JobState.FAILOVER_IN_PROGRESS
    if reason_name(job.reason) in _FAILING:
        return JobState.FAILOVER_IN_PROGRESS if failovers.opted_in else JobState.FAILED
    if job.reason == "TimeLimit":
        return JobState.TIMEOUT
    return JobState.COMPLETED if (job.exit_code, job.exit_signal) == (0, 0) else JobState.CANCELLED


def _failing_over(job: JobRecord, failovers: Failovers) -> bool:
    """Whether the restart that the job waits for is ours."""
    return any(attempt.counted and attempt.number == job.restarts - 1 for attempt in failovers.history.attempts)


def _held_after_its_own_error(job: JobRecord, failovers: Failovers) -> bool:
    """An expedited job that failed with no Epilog failing, which Slurm holds (measured on 26.05). One that an admin
    requeued held was running: it has no exit code."""
    return job.state == "REQUEUE_HOLD" and failovers.opted_in and job.exit_code != 0


def _cancelled_by_us(job: JobRecord, failovers: Failovers) -> bool:
    """Over the limit we cancel a job that Slurm has requeued; an uncounted hardware fault is in no other ledger."""
    return any(
        attempt.domain is Domain.HARDWARE and not attempt.counted and attempt.number == job.restarts - 1
        for attempt in failovers.history.attempts
    )


def _cause(job: JobRecord, failovers: Failovers) -> str:
    if failovers.faults:
        return failovers.faults[0].cause + ("" if job.requeue and job.batch else " (not requeueable)")
    if job.state in _LOST_NODE:
        return f"{NODE_DOWN} (not requeueable)"
    if job.state in _FAILED:
        return f"exit{job.exit_code}:{job.exit_signal}"
    attempts = failovers.history.attempts
    return attempts[-1].cause if attempts else ""

"""A job's attempts one after the other, with what each cost: from its ledger and its present state. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from slurm_ft.failover import restraint
from slurm_ft.model import Attempt, Domain, JobState
from slurm_ft.slurm.protocol import JobRecord
from slurm_ft.status.view import JobView

FROM_SCRATCH = -1
UNBEGUN = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")
GOES_ON = ("RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT")


@dataclass(frozen=True, slots=True)
class Lap:
    """One attempt as it is told. Times are unix seconds; None where they are not known, or have not come.

    `number` counts from 1 by what is spent, so a preempted attempt and the one after it share one. `step` is
    FROM_SCRATCH or the step of the checkpoint that it started from, `saved` when that was written.
    `waited` are the seconds until the next attempt began (or until now), `work_lost` those of training that the next
    one had to do again.
    """

    restart: int
    number: int
    nodes: str
    started: float | None
    ended: float | None
    domain: Domain
    cause: str = ""
    bad_nodes: tuple[str, ...] = ()
    counted: bool = False
    evidence: tuple[str, ...] = ()
    step: int | None = None
    saved: int | None = None
    waited: float | None = None
    work_lost: float | None = None
    present: bool = False


def laps(view: JobView, now: float) -> tuple[Lap, ...]:
    """All attempts that are known of, the present or last one at the end."""
    past, spent = [], 0
    for attempt in view.failovers.history.attempts:
        if attempt.number < view.job.restarts:
            past.append(_past(attempt, spent + 1))
            spent += attempt.counted
    return _costed((*past, _present(view, max(spent, view.failovers.count) + 1)), now)


def elapsed(job: JobRecord, now: float) -> float | None:
    """Seconds that the present attempt has run, or that the last one ran."""
    start = began(job)
    if start is None:
        return None
    return max((ended(job) or now) - start, 0.0)


def began(job: JobRecord) -> float | None:
    """When the attempt began. The start and the end of a job that waits are what Slurm expects."""
    return None if job.state in UNBEGUN else job.started


def ended(job: JobRecord) -> float | None:
    """When the attempt ended."""
    return None if job.state in (*UNBEGUN, *GOES_ON) else job.ended


def time_lost(view: JobView, now: float) -> float | None:
    """Seconds between the ends of attempts and the starts of the next; None if it never restarted."""
    known = [lap.waited for lap in laps(view, now) if lap.waited is not None]
    return sum(known) if known else None


def last_evidence(view: JobView) -> str:
    """The line that decided about the last failure."""
    if view.failovers.faults:
        return view.failovers.faults[0].text
    attempts = view.failovers.history.attempts
    return attempts[-1].text if attempts else ""


def _past(attempt: Attempt, number: int) -> Lap:
    return Lap(
        restart=attempt.number,
        number=number,
        nodes=attempt.nodes,
        started=attempt.started,
        ended=attempt.ended,
        domain=attempt.domain,
        cause=attempt.cause,
        bad_nodes=attempt.bad_nodes,
        counted=attempt.counted,
        evidence=(attempt.text,) if attempt.text else (),
        step=attempt.step,
        saved=attempt.saved,
    )


def _present(view: JobView, number: int) -> Lap:
    job, faults = view.job, view.failovers.faults
    failed = view.state in (JobState.INTERNAL_ERROR, JobState.MAX_RETRIES_EXCEEDED, JobState.IMAGE_PULL_BACKOFF)
    return Lap(
        restart=job.restarts,
        number=number,
        nodes=job.nodes or ("" if job.state in UNBEGUN else job.batch_host),  # no other is left once it is COMPLETING
        started=began(job),
        ended=ended(job),
        domain=faults[0].domain if faults else Domain.UNKNOWN,
        cause=view.cause if faults or failed or view.state is JobState.FAILED else "",
        evidence=tuple(f"{fault.node}: {fault.text}" for fault in faults),
        step=restraint.step_of(job.comment, job.restarts),
        saved=restraint.saved_of(job.comment, job.restarts),
        present=True,
    )


def _costed(told: Sequence[Lap], now: float) -> tuple[Lap, ...]:
    """With what each end cost, which only the next attempt shows; where one between them is not known, nothing does."""
    costed = [_cost(lap, following, now) for lap, following in pairwise(told)]
    return (*costed, *told[-1:])


def _cost(lap: Lap, following: Lap, now: float) -> Lap:
    if lap.ended is None or following.restart != lap.restart + 1:
        return lap
    until = following.started if following.started is not None else now if following.present else None
    waited = None if until is None else max(until - lap.ended, 0.0)
    return replace(lap, waited=waited, work_lost=_work_lost(lap, following))


def _work_lost(lap: Lap, following: Lap) -> float | None:
    """From the checkpoint that the next one started from to the end; all of the attempt if that is older than it."""
    if lap.ended is None:
        return None
    kept = lap.started if following.step == FROM_SCRATCH else following.saved
    if kept is None:
        return None
    return max(lap.ended - max(kept, lap.started or kept), 0.0)

"""Carry decisions out, step by step, each written into the journal as soon as it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slurm_ft.alert import alert
from slurm_ft.controller.site import Site
from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import actions, claim, ledger, progress
from slurm_ft.failover.progress import Next, Progress, Step
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Action, Ledger
from slurm_ft.slurm import nodelist
from slurm_ft.slurm.protocol import JobRecord

RELEASE_TIMEOUT = 300.0  # seconds; Slurm's own begin time comes after 121
MOST_STEPS = 6  # requeue, record, release and their looks; a bound, should Slurm show what cannot be

STAGE_AFTER: Mapping[Step, Stage] = {
    Step.REQUEUE: Stage.REQUEUED,
    Step.RECORD: Stage.RECORDED,
    Step.COUNT: Stage.COUNTED,
    Step.CANCEL: Stage.CLOSED,
    Step.RELEASE: Stage.RELEASED,
    Step.CLOSE: Stage.CLOSED,
}


def carry_out(site: Site, open_decision: Progress) -> Progress:
    """Take every step that can be taken now. What Slurm refuses is written down, and stays open.

    Never raises for what Slurm refuses.
    """
    at = open_decision
    for _ in range(MOST_STEPS):
        if not at.open:
            break
        try:
            job = site.slurm.job(at.key.address)
            following = progress.next_step(at, job, site.now(), reuse_delay(site, at))
            if following.step is Step.WAIT:
                break
            note = _take(site, at, job, following)
        except SlurmFtError as error:
            return _refused(site, at, error)
        at = _written(site, at, STAGE_AFTER[following.step], job, note or following.why)
    return at


def release(site: Site, recorded: Progress) -> None:
    """Wait until the job has left COMPLETING, and let it start at once. For a process that may wait."""
    try:
        said, submitted = actions.release(site.slurm, recorded.key, RELEASE_TIMEOUT, reuse_delay(site, recorded))
    except SlurmFtError as error:
        _refused(site, recorded, error)
        return
    stage = Stage.RELEASED if said == actions.RELEASED else Stage.CLOSED
    site.write(_entry(site, recorded, stage, submitted if stage is Stage.RELEASED else None, said))


def reuse_delay(site: Site, decision: Progress) -> float:
    """Seconds between two attempts: none if the job cannot return to one of its nodes. Raises SlurmFtError."""
    decided = decision.decided
    excluded = decided.decision.exclude if decided.decision else ()
    surviving = set(nodelist.expand(decided.nodes)) - set(excluded)
    return site.config.node_reuse_delay if surviving else 0.0


def _take(site: Site, at: Progress, job: JobRecord | None, following: Next) -> str:
    """One step. Returns what is to be noted, or "". Raises SlurmFtError."""
    key, decision = at.key, at.decided.decision
    if job is None or decision is None:
        return ""
    if following.step is Step.RECORD:
        return actions.record(site.slurm, job, decision, _history(site, at, job))
    if following.step is Step.COUNT:
        return actions.count(site.slurm, job, _history(site, at, job), claim.limit(job.comment, site.config))
    if following.step is Step.REQUEUE:
        actions.requeue(site.slurm, key)
    elif following.step is Step.CANCEL:
        site.slurm.cancel(key.address)
    elif following.step is Step.RELEASE:
        actions.let_start(site.slurm, key)
    return ""


def _history(site: Site, at: Progress, job: JobRecord) -> Ledger:
    """The ledger with this decision in it, and with what earlier hooks did not live to write."""
    run = at.decided.run
    known = progress.history(job, site.entries(job.raw_id), run)
    return ledger.add(known, at.decided.attempt())


def _written(site: Site, at: Progress, stage: Stage, job: JobRecord | None, why: str) -> Progress:
    # A closed matter may be that of an earlier job of this id: then this job's submit time is not its own.
    submitted = job.submitted if job and stage is not Stage.CLOSED else None
    entry = site.write(_entry(site, at, stage, submitted, why))
    return replace(at, later=(*at.later, entry))


def _refused(site: Site, at: Progress, error: SlurmFtError) -> Progress:
    if at.action is Action.REQUEUE:
        alert(site.log, f"job {at.key.address}: its failover is unfinished: {error}. `slurm-ft reconcile` goes on")
    if at.last.stage is Stage.FAILED and at.last.detail == str(error):
        return at  # reconcile finds the same each minute: once is enough
    return _written(site, at, Stage.FAILED, None, str(error))


def _entry(site: Site, at: Progress, stage: Stage, submitted: float | None, why: str) -> Entry:
    decided = at.decided
    return Entry(
        at=site.now(),
        stage=stage,
        key=decided.key,
        cluster=decided.cluster,
        run=decided.run,
        submitted=submitted,
        mode=decided.mode,
        detail=why,
    )

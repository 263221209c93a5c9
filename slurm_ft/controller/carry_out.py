"""Carry decisions out, step by step, each written into the journal as soon as it is done."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from slurm_ft.alert import alert
from slurm_ft.controller.job_lock import BusyError, job_lock
from slurm_ft.controller.site import Site
from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import actions, backoff, brake, claim, ledger, progress
from slurm_ft.failover.policy import EXPEDITED_RULE
from slurm_ft.failover.progress import Next, Progress, Step
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Action, Decision, Ledger
from slurm_ft.slurm import nodelist
from slurm_ft.slurm.components import components
from slurm_ft.slurm.protocol import JobRecord

FINISH_TIMEOUT = 300.0  # seconds; Slurm's own begin time comes after 121
POLL = 0.05  # seconds between looks while a job is COMPLETING, at first
POLL_MAX = 1.0
MOST_STEPS = 6  # requeue, record, release and their looks; a bound, should Slurm show what cannot be

STAGE_AFTER: Mapping[Step, Stage] = {
    Step.REQUEUE: Stage.REQUEUED,
    Step.REQUEUE_HELD: Stage.REQUEUED,
    Step.NOTE: Stage.REQUEUED,
    Step.RECORD: Stage.RECORDED,
    Step.COUNT: Stage.COUNTED,
    Step.CANCEL: Stage.CLOSED,
    Step.RELEASE: Stage.RELEASED,
    Step.CLOSE: Stage.CLOSED,
}


def carry_out(site: Site, open_decision: Progress) -> Progress:
    """Take every step that can be taken now. What Slurm refuses is written down, and stays open.

    For the holder of the job's lock. Never raises for what Slurm refuses.
    """
    at = open_decision
    for _ in range(MOST_STEPS):
        if not at.open:
            break
        try:
            job = site.slurm.job(at.key.address)
            following = progress.next_step(at, job, site.now(), reuse_delay(site, at))
            if following.step is Step.WAIT or (following.step is Step.RELEASE and job and _completing(site, job)):
                break
            following = _unless_braked(site, following)
            note = _take(site, at, job, following)
        except SlurmFtError as error:
            return _refused(site, at, error)
        at = _written(site, at, STAGE_AFTER[following.step], job, note or following.why)
    return at


def finish(site: Site, decision: Progress) -> Progress:
    """Carry out what has to wait for the end of COMPLETING: for a process that may wait.

    That is the release at least: set earlier, the begin time is overwritten on 25.11 and 26.05 (measured). If this
    never runs, the job starts two minutes later all the same.
    """
    at, pause, deadline = decision, POLL, time.monotonic() + FINISH_TIMEOUT
    while at.open and not at.has(Stage.COUNTED) and time.monotonic() < deadline:
        with suppress(BusyError), job_lock(site.config.state_dir, at.key.raw_id, 0):
            at = carry_out(site, at)
        time.sleep(pause if at.open else 0)
        pause = min(pause * 1.5, POLL_MAX)
    return at


def _unless_braked(site: Site, following: Next) -> Next:
    """A decision that was left open is not carried out once failover was paused. Raises SlurmCommandError."""
    held = brake.in_force(site.slurm.nodes()) if following.step is Step.REQUEUE else None
    return Next(Step.CLOSE, f"not requeued: {held}") if held else following


def _completing(site: Site, job: JobRecord) -> bool:
    """Whether a component of a het job is. Raises SlurmCommandError."""
    return any(part.state == "COMPLETING" for part in components(site.slurm, job))


def reuse_delay(site: Site, decision: Progress) -> float:
    """Seconds between two attempts: none if the job cannot return to one of its nodes. Raises SlurmFtError.

    slurmd refuses a job whose credential was made in the same second in which it revoked the last one ("Job credential
    revoked", and the job ends FAILED; measured on 22.05, source of all releases), and 22.05 forgets a revoked one only
    every two seconds, until when it skips the Prolog.
    """
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
        return actions.record(site.slurm, job, decision, _with_returned(site, decision, _history(site, at, job)))
    if following.step is Step.COUNT:
        return actions.count(site.slurm, job, _history(site, at, job), claim.limit(job.comment, site.config))
    if following.step is Step.REQUEUE:
        actions.requeue(site.slurm, key)
    elif following.step is Step.REQUEUE_HELD:
        site.slurm.requeue_held(key.address)
    elif following.step is Step.CANCEL:
        site.slurm.cancel(key.address)
    elif following.step is Step.RELEASE:
        wait = _backoff(site, at)
        actions.let_start(site.slurm, key, job, expedited=decision.rule == EXPEDITED_RULE, wait=wait)
        return f"starts in {wait:.0f} s (backoff)" if wait else ""
    return ""


def _backoff(site: Site, at: Progress) -> float:
    """Seconds that the job still has to wait after its last failover."""
    decision = at.decided.decision
    if decision is None or at.action not in progress.COUNTED_ACTIONS:
        return 0.0
    pause = backoff.pause(site.config, decision.count)
    return max(pause - (site.now() - at.since(Stage.REQUEUED)), 0.0) if pause else 0.0


def _history(site: Site, at: Progress, job: JobRecord) -> Ledger:
    """The ledger with this decision in it, and with what earlier hooks did not live to write."""
    run = at.decided.run
    known = progress.history(job, site.entries(job.raw_id), run)
    return ledger.add(known, at.decided.attempt())


def _with_returned(site: Site, decision: Decision, history: Ledger) -> Ledger:
    """The ledger without the exclusions of nodes that an admin has returned since an earlier failover."""
    if not set(history.excluded).difference(decision.exclude):
        return history
    in_service = {node.name for node in site.slurm.nodes() if not node.draining}
    return ledger.forgive(history, in_service.difference(decision.exclude))


def _written(site: Site, at: Progress, stage: Stage, job: JobRecord | None, why: str) -> Progress:
    # A closed matter may be that of an earlier job of this id: then this job's submit time is not its own.
    submitted = job.submitted if job and stage is not Stage.CLOSED else None
    entry = site.write(_entry(site, at, stage, submitted, why))
    return replace(at, later=(*at.later, entry))


def _refused(site: Site, at: Progress, error: SlurmFtError) -> Progress:
    """Slurm may say the same at each try: once is enough."""
    if at.last.stage is Stage.FAILED and at.last.detail == str(error):
        return at
    if at.action is Action.REQUEUE:
        alert(site.log, f"job {at.key.address}: its failover is unfinished: {error}. `slurm-ft reconcile` goes on")
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

"""Finish what killed hooks left open, and enter what no hook announced.

Called for all jobs by `slurm-ft reconcile`, for its own job by PrologSlurmctld, and for what is open of other jobs by
EpilogSlurmctld, once it has done its own work.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

from slurm_ft.controller import carry_out
from slurm_ft.controller.gather import Ended
from slurm_ft.controller.job_lock import BusyError, job_lock
from slurm_ft.controller.judge import judge, note_end, tidy_nodes
from slurm_ft.controller.site import Site
from slurm_ft.controller.tell import spool_mark, tell
from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import actions, claim, ledger, node_record, progress
from slurm_ft.failover.progress import FAILED, FINAL, PENDING, Progress
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Attempt, Domain, JobKey, Ledger
from slurm_ft.slurm import environment, nodelist
from slurm_ft.slurm.protocol import JobRecord

UNANNOUNCED = "requeued_elsewhere"
SETTLE = 10.0  # seconds; what was touched since then is in the hands of a hook
FRESH = 900.0  # seconds; what is older is left to `slurm-ft reconcile`, since a hook must not read the whole journal
MOST_OTHERS = 8  # other jobs that a hook looks after before it returns
UNSEEN = 600.0  # seconds after its end in which a failed job that no hook has seen is still judged


def reconcile_all(site: Site) -> list[str]:
    """Everything that is open, of every job. Returns what was done, a line each. Raises SlurmFtError."""
    jobs, known = [job for job in site.slurm.jobs() if _leads(job)], site.entries()
    listed = {job.raw_id for job in jobs}
    done: list[str] = []
    for key in _open(known):
        if key.raw_id not in listed:
            done += _locked(site, key, None)
    waiting = {key.raw_id for key in _open(known)} | _with_returned_nodes(site, jobs)
    for job in jobs:
        spool_mark(site, job)
        if job.raw_id in waiting or _unannounced(site, job) or _unseen(site, job, known):
            done += _locked(site, _key(job, job.restarts), job)
    return [*done, *actions.expire_notes(site.slurm, site.slurm.nodes(), site.now())]


def finish_others(site: Site, own: int) -> None:
    """What is open of other jobs than `own`. Raises SlurmFtError."""
    if not site.acting:
        return
    known = site.recent(FRESH)
    busy = {entry.key.raw_id for entry in known if site.now() - entry.at < SETTLE} | {own}
    running = {one.key.raw_id for one in progress.decisions(known) if one.has(Stage.COUNTED)}
    left = [key for key in _open(known) if key.raw_id not in busy | running]
    for key in left[:MOST_OTHERS]:
        _locked(site, key, site.slurm.job(key.address))


def reconcile_job(site: Site, job: JobRecord) -> list[str]:
    """Everything that is open of one job. For the holder of its lock. Raises SlurmFtError."""
    done = [line for seen in _to_judge(site, job) for line in _judge(site, job, seen)]
    for one in progress.decisions(site.entries(job.raw_id)):
        if one.open:
            done += _told(one, carry_out.carry_out(site, one))
    return [*done, *_enter_restart(site, job), *_expire_exclusions(site, job.address)]


def _locked(site: Site, key: JobKey, job: JobRecord | None) -> list[str]:
    """One job, unless another process works on it; an error of one job does not keep the others waiting."""
    try:
        with job_lock(site.config.state_dir, key.raw_id, 0):
            return _forget(site, key) if job is None else reconcile_job(site, job)
    except BusyError:
        return []
    except SlurmFtError as error:
        site.log.error("job %s: not reconciled: %s", key.address, error)
        return [f"job {key.address}: {error}"]


def _open(known: Sequence[Entry]) -> list[JobKey]:
    """The jobs with an end that was not judged, or with a decision that was not finished."""
    keys = [entry.key for entry in progress.unjudged(known)]
    keys += [one.key for one in progress.decisions(known) if one.open]
    return list({key.raw_id: key for key in keys}.values())


def _forget(site: Site, key: JobKey) -> list[str]:
    """Close everything about a job that Slurm does not know any more."""
    known = site.entries(key.raw_id)
    opened = [one.decided for one in progress.decisions(known) if one.open]
    left = [*progress.unjudged(known), *opened]
    for entry in left:
        site.write(_closing(site, entry, "Slurm has forgotten the job"))
    return [f"job {entry.key.address} attempt {entry.key.attempt}: forgotten by Slurm" for entry in left]


def _closing(site: Site, entry: Entry, why: str) -> Entry:
    return Entry(site.now(), Stage.CLOSED, entry.key, entry.cluster, entry.run, mode=entry.mode, detail=why)


def _to_judge(site: Site, job: JobRecord) -> list[Entry]:
    """Ends of this job that nobody decided on: noted by a hook that was killed, or never seen by any.

    While the job is COMPLETING its hook may still be at work.
    """
    if job.state == "COMPLETING":
        return []
    known = site.entries(job.raw_id)
    run = progress.run_id(job, known)
    noted = [entry for entry in progress.unjudged(known) if run and entry.run == run]
    if noted:
        return noted
    if _unannounced(site, job) and not _judged(known, run, job.restarts - 1):
        return [_note(site, job, job.restarts - 1)]
    if _unseen(site, job, known):
        return [_note(site, job, job.restarts)]
    return []


def _judged(known: Sequence[Entry], run: str, attempt: int) -> bool:
    return any(one.decided.run == run and one.key.attempt == attempt for one in progress.decisions(known))


def _judge(site: Site, job: JobRecord, seen: Entry) -> list[str]:
    judged = judge(site, seen, Ended(seen.key, job, requeued=job.restarts > seen.key.attempt))
    tell(site, judged)
    tidy_nodes(site, judged.gathered)
    decision = judged.decision and judged.decision.decided.decision
    name = f"job {seen.key.address} attempt {seen.key.attempt}"
    return [f"{name}: judged now: {decision.reason}"] if decision else []


def _note(site: Site, job: JobRecord, attempt: int) -> Entry:
    """As the hook would have noted it, from what Slurm still knows of the attempt."""
    key = _key(job, attempt)
    array, _, task = job.address.partition("_")
    told = {
        environment.JOB_ID: str(job.raw_id),
        environment.RESTART_COUNT: str(attempt),
        environment.EXIT_CODE: f"{job.exit_code}:{job.exit_signal}",
        environment.NODELIST: job.nodes if job.restarts == attempt else _reporting_nodes(site, key),
        **({environment.ARRAY_JOB_ID: array, environment.ARRAY_TASK_ID: task} if task else {}),
    }
    return note_end(site, told, Ended(key, job, requeued=job.restarts > attempt))


def _leads(job: JobRecord) -> bool:
    """False for those components of a het job that its leader answers for."""
    return job.het_leader in ("", str(job.raw_id))


def _key(job: JobRecord, attempt: int) -> JobKey:
    """As the hooks name it (environment.job_key)."""
    return JobKey(job.raw_id, str(job.raw_id) if job.het_leader else job.address, attempt)


def _reporting_nodes(site: Site, key: JobKey) -> str:
    """Slurm keeps no nodelist of an attempt that was requeued; the nodes that blamed themselves tell."""
    reports = [
        verdict.node
        for node in site.slurm.nodes()
        for verdict in node_record.left_on(node.name, node.reason, node.comment)
        if (verdict.raw_id, verdict.attempt) == (key.raw_id, key.attempt)
    ]
    return nodelist.fold(dict.fromkeys(reports))


def _unannounced(site: Site, job: JobRecord) -> bool:
    """Whether the job was restarted and its ledger does not know it."""
    if job.restarts == 0 or job.state in FINAL or not claim.opted_in(job, site.config):
        return False
    known = ledger.read(job.admin_comment)
    return known is None or all(attempt.number < job.restarts - 1 for attempt in known.attempts)


def _unseen(site: Site, job: JobRecord, known: Iterable[Entry]) -> bool:
    """Whether a job failed a short while ago and no hook wrote down that it did."""
    if job.state not in FAILED or job.ended is None or site.now() - job.ended > UNSEEN:
        return False
    seen = any(
        entry.key.raw_id == job.raw_id and entry.key.attempt == job.restarts and entry.submitted == job.submitted
        for entry in known
        if entry.stage is not Stage.WATCH
    )
    return not seen and claim.opted_in(job, site.config)


def _enter_restart(site: Site, job: JobRecord) -> list[str]:
    """Bring the ledger up to date: a restart that was not ours is entered and spends no failover."""
    now_known = site.slurm.job(job.address)
    if now_known is None or now_known.state == "COMPLETING" or not _unannounced(site, now_known):
        return []
    known = site.entries(job.raw_id)
    run = progress.run_id(now_known, known) or secrets.token_hex(6)
    history = progress.history(now_known, known, run)
    restart = Attempt(now_known.restarts - 1, "", None, site.now(), Domain.UNKNOWN, UNANNOUNCED, (), counted=False)
    entered: Ledger = ledger.add(history, restart)
    actions.count(site.slurm, now_known, entered, claim.limit(now_known.comment, site.config))
    if entered.excluded and now_known.state in PENDING:  # cancelled before it was recorded, and requeued by an admin
        actions.exclude(site.slurm, now_known, entered)
    return [f"job {job.address}: its restart {now_known.restarts} is in the ledger now"]


def _with_returned_nodes(site: Site, jobs: Sequence[JobRecord]) -> set[int]:
    """The pending jobs that exclude a node which was drained then and is in service now."""
    pending = {job.raw_id: ledger.read(job.admin_comment) for job in jobs if job.state == "PENDING"}
    excluding = {raw_id: known for raw_id, known in pending.items() if known and known.excluded}
    in_service = {node.name for node in site.slurm.nodes() if not node.draining} if excluding else set()
    return {raw_id for raw_id, known in excluding.items() if ledger.forgive(known, in_service) != known}


def _expire_exclusions(site: Site, address: str) -> list[str]:
    """A job that waits may have a node again that an admin has returned."""
    job = site.slurm.job(address)
    if job is None or not _with_returned_nodes(site, [job]):
        return []
    known = ledger.read(job.admin_comment) or Ledger("")
    kept = ledger.forgive(known, {node.name for node in site.slurm.nodes() if not node.draining})
    actions.expire_exclusions(site.slurm, job, kept)
    gone = sorted(set(known.excluded).difference(kept.excluded))
    return [f"job {job.address}: not excluded any more, returned to service: {','.join(gone)}"]


def _told(before: Progress, after: Progress) -> list[str]:
    new = after.later[len(before.later) :]
    words = ", ".join(entry.stage.value + (f" ({entry.detail})" if entry.detail else "") for entry in new)
    return [f"job {before.key.address} attempt {before.key.attempt}: {words}"] if new else []

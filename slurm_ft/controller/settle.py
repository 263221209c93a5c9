"""After a requeue: see that Slurm has nodes for the job, drop exclusions in its way, and say what is missing.

A job that no node is left for must not wait in silence.
"""

from __future__ import annotations

import time

from slurm_ft.alert import alert
from slurm_ft.controller.site import Site
from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import actions, blocked, ledger
from slurm_ft.failover.progress import Progress
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import JobKey
from slurm_ft.slurm.protocol import JobRecord

WATCHED = 40.0  # seconds in which the scheduler has looked at the job, on any site; its reasons show at once
LASTING = 10.0  # seconds; nodes need about four to register after a restart of slurmctld, and are missing until then
POLL = 1.0


def settle(site: Site, decision: Progress) -> None:
    """Watch the released job for a while. Never raises: the job is requeued, whatever happens here."""
    key = decision.key
    try:
        why = _watch(site, key)
    except SlurmFtError as error:
        site.log.warning("job %s: whether it can start is not known: %s", key.address, error)
        return
    if why:
        alert(site.log, f"job {key.address} {why}")
        site.write(Entry(site.now(), Stage.BLOCKED, key, site.cluster, decision.decided.run, detail=why))


def _watch(site: Site, key: JobKey) -> str:
    """Why the job cannot start, "" when it can."""
    now = time.monotonic()
    deadline, free_at = now + WATCHED, now
    while now < deadline:
        job = site.slurm.job(key.address)
        if job is None or job.state not in ("PENDING", "COMPLETING"):
            return ""
        if not blocked.is_blocked(job):
            free_at = now
        elif now - free_at >= LASTING:
            dropped = actions.drop_redundant_exclusions(site.slurm, key)
            if not dropped:
                return _why(site, job)
            site.log.info("job %s: exclusions dropped, out of service anyway: %s", key.address, ",".join(dropped))
        time.sleep(POLL)
        now = time.monotonic()
    return ""


def _why(site: Site, job: JobRecord) -> str:
    history = ledger.read(job.admin_comment)
    return blocked.why(job, site.slurm.nodes(), history.excluded if history else ())

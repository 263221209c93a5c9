"""After a requeue: see that Slurm has nodes for the job, drop exclusions in its way, and say what is missing.

A job that no node is left for must not wait in silence.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from logging import Logger

from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import actions, blocked, ledger
from slurm_ft.model import JobKey
from slurm_ft.slurm.protocol import JobRecord, Slurm

WATCHED = 30.0  # seconds in which the scheduler has looked at the job, on any site; its reasons show at once
POLL = 1.0


def settle(slurm: Slurm, key: JobKey, log: Logger, now: Callable[[], float] = time.monotonic) -> str:
    """Returns why the job cannot start, "" when it can. Never raises: the job is requeued, whatever happens here."""
    try:
        why = _watch(slurm, key, log, now() + WATCHED, now)
    except SlurmFtError as error:
        log.warning("job %s: whether it can start is not known: %s", key.address, error)
        return ""
    if why:
        log.warning("job %s: %s", key.address, why)
    return why


def _watch(slurm: Slurm, key: JobKey, log: Logger, deadline: float, now: Callable[[], float]) -> str:
    while now() < deadline:
        job = slurm.job(key.address)
        if job is None or job.state not in ("PENDING", "COMPLETING"):
            return ""
        if blocked.is_blocked(job):
            dropped = actions.drop_redundant_exclusions(slurm, key)
            if not dropped:
                return _why(slurm, job)
            log.info("job %s: exclusions dropped, out of service anyway: %s", key.address, ",".join(dropped))
        time.sleep(POLL)
    return ""


def _why(slurm: Slurm, job: JobRecord) -> str:
    history = ledger.read(job.admin_comment)
    return blocked.why(job, slurm.nodes(), history.excluded if history else ())

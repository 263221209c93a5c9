"""PrologSlurmctld: when a restart was not announced by EpilogSlurmctld, enter the lost attempt into the ledger.

Preemptions, an admin's requeue, or a hook that was killed: the attempt is recorded, and spends no failover.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace

from slurm_ft.config import Config, Mode
from slurm_ft.failover import actions, claim, ledger
from slurm_ft.log import open_log
from slurm_ft.model import Attempt, Domain, Ledger
from slurm_ft.slurm import environment
from slurm_ft.slurm.cli import CommandLine

NAME = "slurmctld_prolog"
UNANNOUNCED = "requeued_elsewhere"


def run(environ: Mapping[str, str], config: Config) -> int:
    """Check the ledger of a restarting job. Raises SlurmFtError; the caller fails open."""
    if config.mode is not Mode.ACT:
        return 0
    key = environment.job_key(environ)
    slurm = CommandLine.of(config)
    job = slurm.job(key.address)
    if job is None or key.attempt == 0 or not claim.opted_in(job.comment, job.requeue, config):
        return 0
    history = ledger.read(job.admin_comment) or Ledger(run_id=secrets.token_hex(6))
    lost = key.attempt - 1
    if any(attempt.number >= lost for attempt in history.attempts):
        return 0
    open_log(config, NAME).info("job %s: attempt %d ended unannounced; recorded, not counted", key.address, lost)
    attempt = Attempt(lost, "", None, time.time(), Domain.UNKNOWN, UNANNOUNCED, (), counted=False)
    actions.write_ledger(slurm, key, replace(history, attempts=(*history.attempts, attempt)))
    return 0

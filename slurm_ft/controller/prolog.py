"""PrologSlurmctld: see to it that the end of the attempt before this one is in the ledger.

A hook that was killed left its decision, or the end that it was to judge, in the journal: that is finished now.
Preemptions and an admin's requeue that no hook announced are entered, and spend no failover.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurm_ft.config import Config
from slurm_ft.controller import reconcile
from slurm_ft.controller.job_lock import job_lock
from slurm_ft.controller.site import Site
from slurm_ft.failover import claim
from slurm_ft.slurm import environment

NAME = "slurmctld_prolog"
PATIENCE = 20.0  # seconds for all of Slurm's answers; the job waits, and the shell part ends this after 30
LOCK_WAIT = 5.0  # seconds


def run(environ: Mapping[str, str], config: Config) -> int:
    """Check the ledger of a restarting job. Raises SlurmFtError; the caller fails open."""
    site = Site.of(config, NAME, environ, PATIENCE)
    key = environment.job_key(environ)
    if not site.acting or key.attempt == 0:
        return 0
    job = site.slurm.job(key.address)
    if job is None or not claim.opted_in(job, config):
        return 0
    with job_lock(config.state_dir, key.raw_id, LOCK_WAIT):
        reconcile.reconcile_job(site, job)
    return 0

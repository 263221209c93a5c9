"""`slurm-ft hook gate-release`: let a job that this node refused start elsewhere at once, and not held.

Slurm requeues it with a begin time two minutes ahead, and holds it unless SchedulerParameters has
nohold_on_prolog_fail. The node Prolog starts this in the background; it does so for every job, also for one that did
not ask for failover.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from slurm_ft.config import Config
from slurm_ft.errors import SlurmCommandError
from slurm_ft.failover import actions
from slurm_ft.log import open_log
from slurm_ft.model import JobKey
from slurm_ft.slurm import environment
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import Slurm

NAME = "node_gate"
TIMEOUT = 60.0  # seconds; Slurm's own begin time comes after 121
POLL = 0.5


def run(environ: Mapping[str, str], config: Config) -> int:
    """Wait for the requeue, then for what a job needs that may return to one of its nodes. Raises SlurmFtError."""
    key, slurm = environment.job_key(environ), CommandLine.of(config).within(TIMEOUT)
    if not wait_for_requeue(slurm, key):
        return 0
    time.sleep(config.node_reuse_delay)
    job = slurm.job(key.address)
    if job is not None and job.state == "PENDING" and job.restarts == key.attempt + 1:
        actions.let_start(slurm, key, job)
        open_log(config, NAME).info("job %s: let start elsewhere", key.address)
    return 0


def wait_for_requeue(slurm: Slurm, key: JobKey) -> bool:
    """Whether Slurm has requeued the refused attempt; a job that it may not requeue it has ended."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        try:
            job = slurm.job(key.address)
        except SlurmCommandError:
            return False
        if job is None or job.state not in ("PENDING", "COMPLETING", "RUNNING", "CONFIGURING"):
            return False
        if job.state == "PENDING" and job.restarts == key.attempt + 1:
            return True
        time.sleep(POLL)
    return False

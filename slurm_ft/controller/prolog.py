"""PrologSlurmctld: enter an attempt into the ledger whose end EpilogSlurmctld did not.

Preemptions and an admin's requeue are recorded and spend no failover. A hook that was killed after its decision stands
in the journal: what it had decided is written down now.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slurm_ft import journal
from slurm_ft.config import Config, Mode
from slurm_ft.failover import actions, claim, ledger
from slurm_ft.log import open_log
from slurm_ft.model import Action, Attempt, Domain, JobKey, Ledger
from slurm_ft.slurm import environment
from slurm_ft.slurm.cli import CommandLine

NAME = "slurmctld_prolog"
UNANNOUNCED = "requeued_elsewhere"
RESTARTS = (Action.REQUEUE.value, Action.RECORD.value)
# Seconds. Job ids are reused: an older decision is on another job. A requeued job starts within minutes, or waits for
# nodes; what is lost then is one count.
DECISION_AGE = 86400.0


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
    if any(attempt.number >= key.attempt - 1 for attempt in history.attempts):
        return 0
    attempt = _lost_attempt(config, key, time.time())
    open_log(config, NAME).info("job %s: an end was not recorded, entered now: %s", key.address, attempt)
    excluded = tuple(dict.fromkeys((*history.excluded, *attempt.bad_nodes)))
    recovered = Ledger(history.run_id, (*history.attempts, attempt), excluded)
    actions.write_records(slurm, key, recovered, claim.limit(job.comment, config))
    return 0


def _lost_attempt(config: Config, key: JobKey, now: float) -> Attempt:
    unannounced = Attempt(key.attempt - 1, "", None, now, Domain.UNKNOWN, UNANNOUNCED, (), counted=False)
    decided = _decision(config, key, now)
    if decided is None:
        return unannounced
    return replace(
        unannounced,
        domain=Domain.HARDWARE,
        cause=str(decided["cause"]),
        bad_nodes=tuple(str(node) for node in decided["exclude"]),
        counted=True,
        text=str(decided["text"])[: ledger.TEXT_LIMIT],
    )


def _decision(config: Config, key: JobKey, now: float) -> Mapping[str, Any] | None:
    """The decision to restart this job that its hook did not live to record."""
    try:
        entries = journal.entries(config.state_dir)
    except OSError:
        return None
    wanted = {"what": "decided", "raw_id": key.raw_id, "attempt": key.attempt - 1, "mode": Mode.ACT.value}
    recent = (entry for entry in reversed(entries) if now - float(entry.get("at", 0)) < DECISION_AGE)
    matching = (entry for entry in recent if all(entry.get(name) == value for name, value in wanted.items()))
    return next((entry for entry in matching if entry.get("action") in RESTARTS), None)

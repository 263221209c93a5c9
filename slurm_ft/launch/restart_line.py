"""The line before the output of an attempt that follows another one: why the job starts again.

It comes from the ledger, where the decision is. prolog/task_prolog has it printed into the job's log, by Slurm itself
and before the script's first word; without that hook `slurm-ft run` and `slurm-ft resume` print it above their banner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slurm_ft import log_marks
from slurm_ft.config import Config
from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import claim, ledger
from slurm_ft.model import Attempt, Ledger
from slurm_ft.slurm import environment, nodelist
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord

TOLD = "SLURM_FT_RESTART_TOLD"  # set by task_prolog: the log has the line
ANSWER_SECONDS = 5.0  # a job's start waits for this


def run(environ: Mapping[str, str], config: Config) -> int:
    """For task_prolog, as the job's user: print the line in the way that Slurm reads. Says nothing where it cannot."""
    slurm = replace(CommandLine.of(config), timeout=ANSWER_SECONDS, tries=1)
    address = environment.job_key(environ).address
    try:
        job = slurm.job(address)
    except SlurmFtError:
        return 0
    line = "" if job is None else compose(job, config, environment.restart_of(environ))
    if line:
        print(f"print {line}\nexport {TOLD}=1")
    return 0


def compose(job: JobRecord, config: Config, restart: int) -> str:
    """The line; "" at the first start, for a job that did not ask for failover, and where the site wants none. Pure.

    "" also where the ledger knows nothing of the attempt before: `mode: observe`, or a job of `--requeue=expedite`,
    which may start before it is written.
    """
    if restart < 1 or not config.evidence_in_log or not claim.opted_in(job, config):
        return ""
    spent, limit = claim.spent(job.comment, job.admin_comment), claim.limit(job.comment, config)
    history = ledger.read(job.admin_comment) or Ledger(run_id="")
    before = next((attempt for attempt in history.attempts if attempt.number == restart - 1), None)
    if before is None:
        return ""
    return log_marks.again(job.raw_id, f"{spent + 1}/{limit + 1}", restart, _why(before, history, spent, limit))


def _why(before: Attempt, history: Ledger, spent: int, limit: int) -> str:
    where = nodelist.fold(before.bad_nodes) or before.nodes or "?"
    evidence = f" {log_marks.quote(before.text)}" if before.text else ""
    if not before.counted:
        return f"restart {before.number} ended on {where}: {before.cause}{evidence}; no failover spent"
    without = f" without {nodelist.fold(history.excluded)}" if history.excluded else ""
    ended = f"attempt {spent}/{limit + 1} ended on {where}: {before.cause}{evidence}"
    return f"{ended}; goes on{without} (failover {spent} of {limit})"

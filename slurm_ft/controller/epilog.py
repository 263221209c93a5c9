"""EpilogSlurmctld: look, decide, record, act; then let the requeued job start at once."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from logging import Logger
from typing import Any

from slurm_ft import journal
from slurm_ft.config import Config, Mode
from slurm_ft.controller.detach import detach
from slurm_ft.controller.gather import Gathered, gather
from slurm_ft.errors import SlurmCommandError
from slurm_ft.failover import actions, claim, ledger
from slurm_ft.failover.actions import Done
from slurm_ft.failover.cascade import wrongly_drained
from slurm_ft.failover.policy import decide
from slurm_ft.log import open_log
from slurm_ft.model import Action, Decision, JobEnd, JobKey, Ledger
from slurm_ft.slurm import environment
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord, Slurm

NAME = "slurmctld_epilog"
RELEASE_TIMEOUT = 300.0  # seconds; Slurm's own begin time comes after 121


@dataclass(frozen=True, slots=True)
class Hook:
    """What every step of this hook needs."""

    config: Config
    slurm: Slurm
    log: Logger
    key: JobKey


def run(environ: Mapping[str, str], config: Config) -> int:
    """Handle the end of one attempt. Raises SlurmFtError; the caller fails open."""
    hook = Hook(config, CommandLine.of(config), open_log(config, NAME), environment.job_key(environ))
    gathered = gather(hook.slurm, config, environ, hook.key, time.time())
    if gathered is None:
        hook.log.warning("job %s: Slurm has forgotten it; nothing to decide", hook.key.address)
        return 0
    hook = replace(hook, key=gathered.end.key)
    before = _history(gathered.job)
    if any(attempt.number == hook.key.attempt for attempt in before.attempts):
        hook.log.warning("job %s attempt %d is decided on already", hook.key.address, hook.key.attempt)
        return 0
    decision = decide(gathered.end, gathered.verdicts, claim.spent(gathered.job.comment, gathered.job.admin_comment))
    history = ledger.record(before, gathered.end, decision)
    _record(hook, history, "decided", {**_as_json(decision), "mode": config.mode.value})
    if config.mode is Mode.ACT:
        done = _act(hook, gathered.end, decision, history)
        _record(hook, history, "done", {"steps": done.steps, "failed": done.failed})
        _lift_drains(hook, gathered)
    _erase_notes(hook, gathered)
    return 0


def _history(job: JobRecord) -> Ledger:
    """The job's ledger, or a new one: job ids are reused, so each job gets a run id of its own."""
    return ledger.read(job.admin_comment) or Ledger(run_id=secrets.token_hex(6))


def _act(hook: Hook, end: JobEnd, decision: Decision, history: Ledger) -> Done:
    done = actions.apply(hook.slurm, hook.key, decision, history)
    if decision.action in (Action.REQUEUE, Action.RECORD):
        surviving = set(end.node_names) - set(decision.exclude)
        detach(partial(_release, hook, hook.config.node_reuse_delay if surviving else 0.0))
    return done


def _release(hook: Hook, delay: float) -> None:
    """Runs detached, after the hook has returned; its log is opened anew, since it keeps no descriptor."""
    log = open_log(hook.config, NAME)
    try:
        log.info("job %s: %s", hook.key.address, actions.release(hook.slurm, hook.key, RELEASE_TIMEOUT, delay))
    except SlurmCommandError as error:
        log.warning("job %s: its begin time stays, it starts two minutes later: %s", hook.key.address, error)


def _lift_drains(hook: Hook, gathered: Gathered) -> None:
    """Nodes that saw only the far end of another node's fault go back into service."""
    for name in wrongly_drained(gathered.end, gathered.verdicts):
        try:
            done = actions.lift_drain(hook.slurm, name, hook.key)
            hook.log.info("job %s: %s, its fault was at the far end of a link", hook.key.address, done)
        except SlurmCommandError as error:
            hook.log.warning("%s stays drained, though its fault was at the far end of a link: %s", name, error)


def _erase_notes(hook: Hook, gathered: Gathered) -> None:
    try:
        for raw_id in gathered.end.component_ids or (hook.key.raw_id,):
            actions.erase_notes(hook.slurm, gathered.nodes, raw_id)
    except SlurmCommandError as error:
        hook.log.warning("a read verdict stays in a node's Comment: %s", error)


def _record(hook: Hook, history: Ledger, what: str, details: Mapping[str, Any]) -> None:
    """Log and journal. A full or read-only disk costs the record, never the job."""
    hook.log.info("job %s attempt %d %s: %s", hook.key.address, hook.key.attempt, what, dict(details))
    entry = {
        "at": round(time.time(), 3),
        "what": what,
        "job": hook.key.address,
        "raw_id": hook.key.raw_id,
        "attempt": hook.key.attempt,
        "run": history.run_id,
        **details,
    }
    try:
        journal.append(hook.config.state_dir, entry)
    except OSError as error:
        hook.log.error("journal in %s cannot be written: %s", hook.config.state_dir, error)


def _as_json(decision: Decision) -> dict[str, Any]:
    return {
        "action": decision.action.value,
        "state": decision.state.value,
        "domain": decision.domain.value,
        "cause": decision.cause,
        "exclude": decision.exclude,
        "count": decision.count,
        "limit": decision.limit,
        "rule": decision.rule,
        "reason": decision.reason,
        "text": decision.text,
    }

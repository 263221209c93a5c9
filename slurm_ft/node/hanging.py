"""What the watcher does about an attempt that outlives a fatal fault: judge as the epilog does, drain, end the job.

A job does not go on without its GPU, but it may well go on after a fault of the node around it (a memory page that was
lost elsewhere, a disk, one of several network cards). Then the node is drained and the job is left alone: if it dies of
the fault after all, the epilog finds the same line.

The job is ended by killing its batch script. Slurm then takes the attempt for failed, and everything else is the normal
path: the node epilog judges, EpilogSlurmctld decides, counts, excludes and requeues. `scontrol requeue` of a running
job would not do: its hooks see the next attempt's restart count and `0:0` (measured on 22.05), so the attempt would be
lost to the count; and it would revive a job that was cancelled meanwhile.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from enum import Enum
from logging import Logger
from pathlib import Path

from slurm_ft import journal
from slurm_ft.classify import classify
from slurm_ft.config import Config, Mode
from slurm_ft.failover import actions, node_record
from slurm_ft.failover.hanging import KILLED, decide_hanging, runs
from slurm_ft.failover.restraint import Surroundings
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Action, Decision, Domain, EventKind, Evidence, JobKey, NodeVerdict, Verdict
from slurm_ft.node import attempt_file
from slurm_ft.node.attempt_file import RunningAttempt
from slurm_ft.node.epilog import node_verdict
from slurm_ft.node.observe import observe
from slurm_ft.node.report import Reporter, report, unless_switched_off
from slurm_ft.override_file import load_overrides
from slurm_ft.slurm import environment, nodelist
from slurm_ft.slurm.protocol import JobRecord, Slurm


@dataclass(frozen=True, slots=True)
class Place:
    """Where the watcher works, and with what."""

    config: Config
    node: str
    run_dir: Path
    slurm: Slurm
    log: Logger


class Outcome(Enum):
    """What remains to be done about the attempt."""

    INNOCENT = "its fault is no hardware verdict: wait for the next one"
    SETTLED = "it is left running: nothing more"
    GOES_ON = "only the node around its GPUs is to blame, and the job may go on: wait for a fault of its GPU"
    ENDING = "it should end now: look again later whether it did"


def handle(place: Place, attempt: RunningAttempt) -> Outcome:
    """Act on an attempt whose grace time is over.

    Raises SlurmFtError when Slurm does not answer; the whole may then be tried again.
    """
    evidence = _observe(place, attempt)
    verdict = _judge(place, evidence)
    place.log.info("job %s on %s: %s: %s", attempt.name, place.node, verdict.cause, verdict.reason)
    if verdict.domain is not Domain.HARDWARE:
        return Outcome.INNOCENT
    note = node_verdict(verdict, JobKey(attempt.raw_id, str(attempt.raw_id), attempt.number), place.node)
    if place.config.mode is Mode.ACT:
        report(Reporter(place.slurm, place.config, place.log), note, verdict.node_action)
    job = _find(place.slurm, attempt.raw_id)
    if job is None:
        place.log.warning("job %s: Slurm has forgotten it; nothing to end", attempt.name)
        return Outcome.SETTLED
    if _judge(place, _without_host(evidence)).domain is not Domain.HARDWARE:
        place.log.info("job %s: left running, its GPUs are not to blame", attempt.name)
        return Outcome.GOES_ON
    key = JobKey(job.raw_id, job.address, attempt.number)
    if not runs(key, job):
        place.log.info("job %s: not ended, it is %s by now", key.address, job.state)
        return Outcome.ENDING
    return _end_or_leave(place, key, _decide(place, key, job, note))


def _end_or_leave(place: Place, key: JobKey, decision: Decision) -> Outcome:
    _record(place, key, decision)
    if place.config.mode is not Mode.ACT or decision.action is not Action.REQUEUE:
        return Outcome.SETTLED
    place.log.info("job %s: %s", key.address, actions.end_hanging(place.slurm, key))
    return Outcome.ENDING


def _observe(place: Place, attempt: RunningAttempt) -> tuple[Evidence, ...]:
    """What the epilog would see, from the variables that Slurm would give it."""
    environ = {
        attempt_file.RUN_DIR_VARIABLE: str(place.run_dir),
        environment.JOB_ID: str(attempt.raw_id),
        environment.RESTART_COUNT: str(attempt.number),
        environment.NODE_NAME: place.node,
        environment.GPUS: attempt.gpus,
    }
    return observe(environ, place.config, environment.job_key(environ), place.node)


def _judge(place: Place, evidence: tuple[Evidence, ...]) -> Verdict:
    verdict = classify(evidence, KILLED, load_overrides(place.config.verdict_overrides))
    return unless_switched_off(verdict, place.config)


def _without_host(evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    return tuple(
        replace(one, events=tuple(event for event in one.events if event.kind is not EventKind.HOST))
        for one in evidence
    )


def _find(slurm: Slurm, raw_id: int) -> JobRecord | None:
    """By its own id: that of an array's first task also names the whole array."""
    return next((job for job in slurm.jobs((f"--jobs={raw_id}",)) if job.raw_id == raw_id), None)


def _decide(place: Place, key: JobKey, job: JobRecord, note: NodeVerdict) -> Decision:
    fleet, own = place.slurm.nodes(), set(nodelist.expand(job.nodes)) - {place.node}
    reports = (node_record.left_on(node.name, node.reason, node.comment) for node in fleet if node.name in own)
    others = [verdict for report in reports for verdict in report]
    return decide_hanging(key, job, (note, *others), Surroundings(fleet, place.config, time.time()))


def _record(place: Place, key: JobKey, decision: Decision) -> None:
    """Log and journal. A full disk costs the record, never the job."""
    place.log.info("job %s attempt %d: %s: %s", key.address, key.attempt, decision.action.value, decision.reason)
    mode = place.config.mode.value
    entry = Entry(time.time(), Stage.WATCH, key, mode=mode, node=place.node, decision=decision)
    try:
        journal.append(place.config.state_dir, entry)
    except OSError as error:
        place.log.error("journal in %s cannot be written: %s", place.config.state_dir, error)

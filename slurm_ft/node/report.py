"""What the epilog and the watcher do with a verdict: leave it for the controller, and drain the node if that may be."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from logging import Logger

from slurm_ft.alert import breaker_opened
from slurm_ft.config import Config, Mode
from slurm_ft.failover import actions, brake, claim
from slurm_ft.failover.brake import Brake
from slurm_ft.model import Domain, NodeAction, NodeVerdict, Verdict
from slurm_ft.slurm.protocol import Slurm


@dataclass(frozen=True, slots=True)
class Reporter:
    """With what a node reports."""

    slurm: Slurm
    config: Config
    log: Logger


def unless_switched_off(verdict: Verdict, config: Config) -> Verdict:
    """A rule that the site has switched off (`rules_off`) convicts nobody and drains nothing."""
    if verdict.rule not in config.rules_off:
        return verdict
    domain = Domain.UNKNOWN if verdict.domain is Domain.HARDWARE else verdict.domain
    reason = f"{verdict.reason} The rule {verdict.rule} is switched off (rules_off)."
    return replace(verdict, domain=domain, node_action=NodeAction.NONE, reason=reason)


def report(reporter: Reporter, note: NodeVerdict, wanted: NodeAction) -> NodeAction:
    """Report `note`; drain the node if `wanted` says so and nothing speaks against it. Returns what was done.

    Raises SlurmCommandError.
    """
    action = allowed_action(reporter, note, wanted)
    done = actions.report_fault(reporter.slurm, note, action)
    reporter.log.info("job %d.%d: %s", note.raw_id, note.attempt, done)
    return action


def allowed_action(reporter: Reporter, note: NodeVerdict, wanted: NodeAction) -> NodeAction:
    """NONE in observe mode, for a partition without failover, and while the brake is on. Raises SlurmCommandError."""
    if wanted is not NodeAction.DRAIN or reporter.config.mode is not Mode.ACT:
        return NodeAction.NONE
    if not _in_partition(reporter, note.raw_id):
        reporter.log.info("job %d: %s not drained, the job's partition has no failover", note.raw_id, note.node)
        return NodeAction.NONE
    if held := _brake(reporter, note.node):
        reporter.log.warning("job %d: %s not drained: %s", note.raw_id, note.node, held)
        return NodeAction.NONE
    return wanted


def _in_partition(reporter: Reporter, raw_id: int) -> bool:
    if not reporter.config.partitions:
        return True
    jobs = reporter.slurm.jobs((f"--jobs={raw_id}",))
    return any(claim.in_partition(job, reporter.config) for job in jobs if job.raw_id == raw_id)


def _brake(reporter: Reporter, node: str) -> Brake | None:
    """The brake that is on; this node's own drain may be the one that puts it on."""
    nodes = reporter.slurm.nodes()
    if held := brake.in_force(nodes):
        return held
    tripped = brake.tripped(nodes, (node,), reporter.config, time.time())
    if tripped:
        actions.put_on_brake(reporter.slurm, nodes, tripped)
        breaker_opened(reporter.log, str(tripped))
    return tripped

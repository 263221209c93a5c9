"""What would be said and done if a GPU fell off the bus now: a made-up fault, through the real judges. Pure.

Beside it a program's own fault, which must not be retried: a suite that fails over everything would pass the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_ft.classify import classify
from slurm_ft.config import Config, Mode
from slurm_ft.doctor.finding import Finding, Stage, fail, ok, warning
from slurm_ft.failover import node_record
from slurm_ft.failover.policy import decide
from slurm_ft.model import (
    Action,
    Decision,
    Domain,
    Evidence,
    ExitStatus,
    JobEnd,
    JobKey,
    NodeAction,
    NodeVerdict,
    Restraints,
    Verdict,
)
from slurm_ft.node.report import unless_switched_off
from slurm_ft.sensors import kernel_log
from slurm_ft.sensors.kernel_lines import parse_line

if TYPE_CHECKING:
    from slurm_ft.classify.overrides import Overrides

LOST_GPU = "NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
OWN_FAULT = (
    "NVRM: Xid (PCI:{pci}): 31, pid=4711, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS faulted @ 0x7f00"
)
SOME_GPU = "0000:3b:00"
FAILED = ExitStatus(1, 0)
KEY = JobKey(1, "1", 0)


@dataclass(frozen=True, slots=True)
class Stagehand:
    """With what the site would judge. `now` is unix seconds; `brake` is why nothing is failed over, or ""."""

    config: Config
    overrides: Overrides
    node: str
    now: float
    brake: str = ""


def rehearse(stage: Stagehand) -> Iterator[Finding]:
    """The verdicts, then the decision on the first."""
    lost, own = _verdict(stage, LOST_GPU), _verdict(stage, OWN_FAULT)
    yield judge_lost_gpu(lost, stage)
    yield judge_own_fault(own)
    yield judge_decision(decide(_end(stage), _left_on_node(lost, stage), 0), stage)


def _verdict(stage: Stagehand, line: str) -> Verdict:
    event = parse_line(f"3,1,100000000,-;{line.format(pci=SOME_GPU)}")
    events = () if event is None else (event,)
    evidence = Evidence(kernel_log.SENSOR, readable=True, events=events)
    return unless_switched_off(classify((evidence,), FAILED, stage.overrides), stage.config)


def judge_lost_gpu(verdict: Verdict, stage: Stagehand) -> Finding:
    """A GPU that fell off the bus is hardware, and drains the node, unless the site has said otherwise."""
    said = f"a made-up Xid 79 on {stage.node}: {verdict.domain.value}, {verdict.cause}: {verdict.reason}"
    if verdict.domain is Domain.HARDWARE and verdict.node_action is NodeAction.DRAIN:
        return ok(Stage.VERDICT, said)
    return fail(Stage.VERDICT, said, "Look at verdict_overrides and rules_off: by themselves the rules drain for it")


def judge_own_fault(verdict: Verdict) -> Finding:
    """An illegal memory access is the program's own, unless the site has said otherwise."""
    said = f"a made-up Xid 31 (a program's own fault): {verdict.domain.value}, {verdict.cause}"
    if verdict.domain is not Domain.HARDWARE:
        return ok(Stage.VERDICT, said)
    return warning(Stage.VERDICT, f"{said}: bugs would be retried", "Look at verdict_overrides")


def _left_on_node(verdict: Verdict, stage: Stagehand) -> tuple[NodeVerdict, ...]:
    """As it would reach the controller: written into the drain Reason, and read from there."""
    event = verdict.decisive
    note = NodeVerdict(
        node=stage.node,
        raw_id=KEY.raw_id,
        attempt=KEY.attempt,
        domain=verdict.domain,
        cause=verdict.cause,
        pci=event.pci if event else None,
        at=stage.now,
        text=event.source if event else verdict.reason,
    )
    return node_record.in_reason(node_record.add("", note), stage.node)


def _end(stage: Stagehand) -> JobEnd:
    config = stage.config
    return JobEnd(
        key=KEY,
        exit=FAILED,
        reason="NonZeroExitCode",
        nodes=stage.node,
        node_names=(stage.node,),
        down_nodes=(),
        silent_nodes=(),
        started=stage.now - 60,
        ended=stage.now,
        restarts_now=0,
        opted_in=True,
        requeueable=True,
        limit=min(config.limit, config.limit_max),
        restraints=Restraints(brake=stage.brake, rules_off=config.rules_off),
    )


def judge_decision(decision: Decision, stage: Stagehand) -> Finding:
    """Whether the job would start again elsewhere."""
    said = f"a job that asked for failover: {decision.reason}"
    if decision.action is not Action.REQUEUE:
        return fail(Stage.DECISION, f"{said}: it would not start again", _cure(decision))
    if stage.config.mode is Mode.OBSERVE:
        what = f"{said}; only recorded (mode: observe), no node is drained and no job requeued"
        return warning(Stage.DECISION, what, "mode: act in slurm_ft.yaml, once you trust what the journal says")
    return ok(Stage.DECISION, f"{said}; excluded: {','.join(decision.exclude)}")


def _cure(decision: Decision) -> str:
    return {
        "held_back": "slurm-ft unpause",
        "limit_reached": "limit and limit_max in slurm_ft.yaml",
        "rule_off": "rules_off in slurm_ft.yaml",
    }.get(decision.rule, "See the verdict above")

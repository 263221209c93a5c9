"""What the epilog would have said, from texts: a case or a pasted log -> evidence -> the same `classify()`."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from slurm_ft.classify import classify
from slurm_ft.cli.case_file import CaseText
from slurm_ft.failover.policy import decide
from slurm_ft.model import Action, Domain, Event, EventKind, Evidence, ExitStatus, JobEnd, JobKey, NodeVerdict, Verdict
from slurm_ft.sensors import kernel_log, text_log
from slurm_ft.sensors.job_output import of_this_attempt
from slurm_ft.sensors.output_signatures import output_events
from slurm_ft.sensors.state_texts import STATES, gpu_state_events, nic_state_events, slurm_events

if TYPE_CHECKING:
    from slurm_ft.classify.overrides import Overrides

NODE = "node"
IMAGE_PULL = "image_pull"
_REASONS = {"time_limit": "TimeLimit", "preempted": "Preempted"}  # as Slurm names them


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict on one case, what it rests on, and what would follow."""

    verdict: Verdict
    evidence: tuple[Evidence, ...]
    retry: bool

    @property
    def imagepull(self) -> bool:
        """Whether the job would be shown as imagepullbackoff."""
        return self.verdict.cause == IMAGE_PULL

    @property
    def events(self) -> tuple[Event, ...]:
        """All events, whatever their source."""
        return tuple(event for one in self.evidence for event in one.events)


def answer(case: CaseText, overrides: Overrides = MappingProxyType({})) -> Answer:
    """Judge one case."""
    return judge(evidence_of(case), case.exit, overrides, case.slurm_state)


def judge(evidence: tuple[Evidence, ...], end: ExitStatus, overrides: Overrides, slurm_state: str = "") -> Answer:
    """Judge what the sensors reported."""
    verdict = classify(evidence, end, overrides)
    return Answer(verdict, evidence, _retried(verdict, end, slurm_state, evidence))


def evidence_of(case: CaseText) -> tuple[Evidence, ...]:
    """What each sensor would have reported. A text that the case lacks is a sensor that was not asked."""
    found = []
    if case.texts.get("kernel_log") is not None:
        found.append(_kernel_log(case))
    if case.texts.get("gpu_state") is not None:
        events = gpu_state_events(case.lines("gpu_state"))
        kept = tuple(event for event in events if _state_is_of(event, case.gpus))
        found.append(Evidence("gpu_state", readable=True, events=kept))
    if case.texts.get("nic_state") is not None:
        found.append(Evidence("nic_state", readable=True, events=nic_state_events(case.lines("nic_state"))))
    if case.texts.get("job_output_tail") is not None and not _ended_well(case):
        output = output_events(of_this_attempt(case.lines("job_output_tail")) or ())
        found.append(Evidence("job_output", readable=True, events=output))
    events = slurm_events(case.lines("slurmctld_log"), case.slurm_state)
    if events:
        found.append(Evidence("slurm", readable=True, events=events))
    return tuple(found)


def _ended_well(case: CaseText) -> bool:
    return case.exit.success and case.slurm_state in ("", "COMPLETED")


def _kernel_log(case: CaseText) -> Evidence:
    lines = case.lines("kernel_log")
    events = text_log.events_in_lines(enumerate(lines, start=1), case.window)
    why = text_log.refused(lines)
    return Evidence(
        kernel_log.SENSOR,
        readable=not why,
        events=tuple(event for event in events if _is_of(event, case.gpus)),
        detail=why,
    )


def _is_of(event: Event, gpus: frozenset[str] | None) -> bool:
    """As the live sensor: an event of another job's GPU, or of none that can be told, is no evidence."""
    return gpus is None or event.kind in kernel_log.OF_THE_NODE or event.pci in gpus


def _state_is_of(event: Event, gpus: frozenset[str] | None) -> bool:
    """A state without an address is taken for one of the job's, but a job without GPUs misses none."""
    if event.pci is not None:
        return _is_of(event, gpus)
    return gpus != frozenset() or event.name != "gpu_missing"


def _retried(verdict: Verdict, exit_status: ExitStatus, slurm_state: str, evidence: tuple[Evidence, ...]) -> bool:
    """What `decide()` would do for a job that opted in, can be requeued and has failovers left."""
    names = {event.name for one in evidence for event in one.events if event.kind is EventKind.SLURM}
    lost = STATES.get(slurm_state) == "node_fail"
    end = JobEnd(
        key=JobKey(1, "1", 0),
        exit=ExitStatus(0, 0) if "cancelled" in names else exit_status,  # the controller's hook sees that
        reason=next((reason for name, reason in _REASONS.items() if name in names), "NonZeroExitCode"),
        nodes=NODE,
        node_names=(NODE,),
        down_nodes=(),
        silent_nodes=(),
        started=None,
        ended=0.0,
        restarts_now=1 if lost else 0,  # Slurm requeues the jobs of a lost node by itself
        opted_in=True,
        requeueable=True,
        limit=1,
    )
    return decide(end, _reported(verdict), 0).action in (Action.REQUEUE, Action.RECORD)


def _reported(verdict: Verdict) -> tuple[NodeVerdict, ...]:
    if verdict.domain is not Domain.HARDWARE:
        return ()
    return (NodeVerdict(NODE, 1, 0, verdict.domain, verdict.cause, None, 0.0, verdict.reason),)

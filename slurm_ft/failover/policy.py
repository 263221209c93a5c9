"""`decide()`: what to do about an ended attempt. Pure: no clock, no I/O; the basis of each decision travels with it.

Read `RULES` from the top: the first rule that has something to say decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurm_ft.model import GATE, IMAGE_PULL, Action, Decision, Domain, JobEnd, JobState, NodeVerdict

NODE_DOWN = "node_down"
EXPEDITED_RULE = "expedited"
CLOCK_SLACK = 3600.0  # seconds. Job ids are reused: an older verdict is on another job. Nodes' clocks may differ

# Slurm's own reason for the end -> the state to show. None of these is retried or counted, whatever the nodes say.
ENDINGS_OF_SLURM = {
    "TimeLimit": JobState.TIMEOUT,
    "DeadLine": JobState.TIMEOUT,
    "Preempted": JobState.PREEMPTED,
}


@dataclass(frozen=True, slots=True)
class Case:
    """What a rule looks at: the end, the spent count, and the hardware found."""

    end: JobEnd
    count: int
    faults: tuple[NodeVerdict, ...]  # of this attempt, earliest first
    blamed: tuple[str, ...]  # the nodes to exclude
    cause: str
    text: str
    image: NodeVerdict | None = None  # the container image could not be loaded
    refused_by: str = ""  # the node whose Prolog did not let the attempt begin

    def decision(self, action: Action, state: JobState, rule: str, reason: str, *, counted: bool = False) -> Decision:
        """A decision on this case; nodes are excluded only when the attempt counts."""
        hardware = bool(self.faults) or self.cause == NODE_DOWN
        exclude = tuple(node for node in self.blamed if node not in self.end.required_nodes) if counted else ()
        return Decision(
            action=action,
            state=state,
            domain=Domain.HARDWARE if hardware else Domain.APPLICATION if self.image else Domain.UNKNOWN,
            cause=self.cause,
            count=self.count + counted,
            limit=self.end.limit,
            rule=rule,
            reason=reason,
            exclude=exclude,
            text=self.text,
            step=self.end.step,
            saved=self.end.saved,
            drained=tuple(node for node in exclude if node in self.end.drained_nodes),
        )

    @property
    def requeued(self) -> bool:
        """Whether somebody has requeued the job already."""
        return self.end.restarts_now > self.end.key.attempt

    @property
    def conflict(self) -> str:
        """What becomes of a node that the user's own --nodelist names. Were it excluded too, Slurm would never start
        the job again; so the job waits until the node is back in service."""
        kept = [node for node in self.blamed if node in self.end.required_nodes]
        return f"; not excluded, since the job's --nodelist requires it: {','.join(kept)}" if kept else ""


def decide(end: JobEnd, verdicts: Sequence[NodeVerdict], count: int) -> Decision:
    """Decide about one ended attempt.

    `verdicts` are what the job's nodes left; only hardware verdicts on this very attempt count.
    `count` is the number of failovers already spent: the greatest of what comment, ledger and journal say.
    """
    case = _case(end, verdicts, count)
    for rule in RULES:
        decision = rule(case)
        if decision is not None:
            return _unless_switched_off(case, decision)
    raise AssertionError("the last rule always decides")


def _unless_switched_off(case: Case, decision: Decision) -> Decision:
    if decision.action is Action.NONE or decision.rule not in case.end.restraints.rules_off:
        return decision
    reason = f"the site has switched off the rule {decision.rule} (rules_off), which would say: {decision.reason}"
    return case.decision(Action.NONE, _left_alone(case), "rule_off", reason)


def _left_alone(case: Case) -> JobState:
    """How a job is shown whose hardware failed and about which nothing is done."""
    return JobState.PENDING if case.requeued else JobState.INTERNAL_ERROR


def faults_of(end: JobEnd, verdicts: Sequence[NodeVerdict]) -> tuple[NodeVerdict, ...]:
    """The hardware faults that the nodes report on this very attempt, the earliest first."""
    own = (verdict for verdict in verdicts if verdict.domain is Domain.HARDWARE and _is_of(verdict, end))
    return tuple(sorted((one for one in own if not one.cause.startswith(GATE)), key=lambda verdict: verdict.at))


def _refusal(end: JobEnd, verdicts: Sequence[NodeVerdict]) -> NodeVerdict | None:
    """The node whose Prolog did not let the attempt begin."""
    return next((verdict for verdict in verdicts if verdict.cause.startswith(GATE) and _is_of(verdict, end)), None)


def primary(faults: Sequence[NodeVerdict]) -> tuple[NodeVerdict, ...]:
    """Those that are no cascade of another node's: what the far end of a link sees counts only if no node has more."""
    own = tuple(fault for fault in faults if not fault.at_link)
    return own or tuple(faults)


def all_blame_themselves(end: JobEnd, faults: Sequence[NodeVerdict]) -> bool:
    """Whether every node of a job of several has a fault."""
    return len(end.node_names) > 1 and {fault.node for fault in faults} == set(end.node_names)


def _case(end: JobEnd, verdicts: Sequence[NodeVerdict], count: int) -> Case:
    faults = primary(faults_of(end, verdicts))
    if faults:
        root = faults[0]  # the earliest is the root, later ones are its cascades
        return Case(end, count, faults, (root.node,), root.cause, root.text)
    if refusal := _refusal(end, verdicts):
        return Case(end, count, (), (), refusal.cause, refusal.text, refused_by=refusal.node)
    if end.down_nodes:
        return Case(end, count, (), end.down_nodes, NODE_DOWN, f"Slurm declared {','.join(end.down_nodes)} down")
    image = next((verdict for verdict in verdicts if verdict.cause == IMAGE_PULL and _is_of(verdict, end)), None)
    if image:
        return Case(end, count, (), (), IMAGE_PULL, image.text, image)
    return Case(end, count, (), (), f"exit{end.exit}", "")


def _is_of(verdict: NodeVerdict, end: JobEnd) -> bool:
    same_attempt = verdict.raw_id in (end.key.raw_id, *end.component_ids) and verdict.attempt == end.key.attempt
    current = end.started is None or verdict.at > end.started - CLOCK_SLACK
    return same_attempt and current and verdict.node in end.node_names


def _not_opted_in(case: Case) -> Decision | None:
    if case.end.opted_in:
        return None
    reason = "the job did not ask for failover, or its partition has none"
    return case.decision(Action.NONE, JobState.FAILED, "not_opted_in", reason)


def _expedited(case: Case) -> Decision | None:
    """`--requeue=expedite`: the Epilog that failed on the blamed node makes Slurm requeue the job, whatever we think.

    So below the limit this is a record, and over it the job is cancelled. A program's own error is held by Slurm.
    """
    end = case.end
    if not end.expedited or not case.blamed:
        return None
    if restrained := _restrained(case):
        return restrained
    reason = f"{_hardware(case)}: failover {case.count + 1} of {end.limit}, requeued by Slurm itself (expedited)"
    return case.decision(Action.RECORD, JobState.FAILOVER_IN_PROGRESS, EXPEDITED_RULE, reason, counted=True)


def _requeued_by_slurm(case: Case) -> Decision | None:
    """Slurm requeued the job itself: a node failure is excluded and counted, a preemption is not."""
    if not case.requeued or case.end.expedited:
        return None
    if case.refused_by:
        reason = f"{case.refused_by} refused to start it, its GPU needs a repair: not counted"
        return case.decision(Action.RELEASE, JobState.FAILOVER_IN_PROGRESS, "refused_by_gate", reason)
    if not case.blamed:
        reason = "requeued by somebody else (preemption or an admin): not counted"
        return case.decision(Action.NONE, JobState.PENDING, "requeued_elsewhere", reason)
    if restrained := _restrained(case):
        return restrained
    reason = f"{_hardware(case)}; Slurm has requeued the job already{case.conflict}"
    return case.decision(Action.RECORD, JobState.FAILOVER_IN_PROGRESS, "requeued_by_slurm", reason, counted=True)


def _ended_well(case: Case) -> Decision | None:
    """`0:0` without a requeue: completed, or cancelled (the controller's hook sees `0:0` for both, measured)."""
    if not case.end.exit.success or case.end.failed_step is not None:
        return None
    return case.decision(Action.NONE, JobState.COMPLETED, "ended_well", "the job ended without an error")


def _step_failed(case: Case) -> Decision | None:
    """Whether a failed step fails the job is the script's affair; a site may take it for a failure all the same."""
    end = case.end
    if end.failed_step is None or not end.exit.success or (end.step_fails_job and case.faults):
        return None
    reason = f"a step ended {end.failed_step} and the batch script 0:0: "
    reason += "no hardware signal" if end.step_fails_job else "reported only (failed_step: report)"
    return case.decision(Action.NONE, JobState.COMPLETED, "step_failed", reason)


def _ended_by_slurm(case: Case) -> Decision | None:
    state = ENDINGS_OF_SLURM.get(case.end.reason)
    if state is None:
        return None
    return case.decision(Action.NONE, state, "ended_by_slurm", f"ended by Slurm: {case.end.reason}")


def _image_not_loaded(case: Case) -> Decision | None:
    if case.image is None:
        return None
    reason = f"the container image could not be loaded on {case.image.node}"
    return case.decision(Action.NONE, JobState.IMAGE_PULL_BACKOFF, "image_not_loaded", reason)


def _no_hardware(case: Case) -> Decision | None:
    if case.blamed:
        return None
    silent = case.end.silent_nodes
    if silent:
        reason = f"no hardware signal; the epilog of {','.join(silent)} did not end in time, so the cause is unknown"
        return case.decision(Action.NONE, JobState.INTERNAL_ERROR, "epilog_silent", reason)
    reason = f"no hardware signal on any of its nodes; it ended {case.end.exit}"
    return case.decision(Action.NONE, JobState.INTERNAL_ERROR, "no_hardware_signal", reason)


def _all_nodes_blame_themselves(case: Case) -> Decision | None:
    """A fault that every node of a job sees has its root elsewhere (fabric, power, a monitor): blame none."""
    if not all_blame_themselves(case.end, case.faults):
        return None
    reason = f"all {len(case.end.node_names)} nodes blame themselves: the root is elsewhere"
    return case.decision(Action.NONE, JobState.INTERNAL_ERROR, "all_nodes_blamed", reason)


def _not_requeueable(case: Case) -> Decision | None:
    if case.end.requeueable:
        return None
    reason = f"{_hardware(case)}, but the job was submitted with --no-requeue or is not a batch job"
    return case.decision(Action.NONE, JobState.FAILED, "not_requeueable", reason)


def _restrained(case: Case) -> Decision | None:
    """What speaks against one more attempt of a job whose hardware failed."""
    return _held_back(case) or _limit_reached(case) or _no_progress(case)


def _held_back(case: Case) -> Decision | None:
    """An admin has paused failover, or so many nodes were drained that the fault must be elsewhere (brake.py)."""
    why = case.end.restraints.brake
    if not why:
        return None
    reason = f"{_hardware(case)}, but {why}: nothing is done until `slurm-ft unpause`"
    return case.decision(Action.NONE, _left_alone(case), "held_back", reason)


def _limit_reached(case: Case) -> Decision | None:
    if case.count < case.end.limit:
        return None
    reason = f"{_hardware(case)}, and all {case.end.limit} failovers are spent"
    return case.decision(_end_of(case), JobState.MAX_RETRIES_EXCEEDED, "limit_reached", reason)


def _no_progress(case: Case) -> Decision | None:
    """Each attempt dies before its first checkpoint: more of them would only burn nodes."""
    restraints = case.end.restraints
    if not restraints.progress_stop or restraints.fruitless < restraints.progress_stop:
        return None
    where = "from scratch" if case.end.step in (None, -1) else f"from step {case.end.step}"
    reason = f"{_hardware(case)}, and {restraints.fruitless} failovers in a row brought no checkpoint: started {where}"
    return case.decision(_end_of(case), JobState.MAX_RETRIES_EXCEEDED, "no_progress", reason)


def _end_of(case: Case) -> Action:
    """How a job ends that gets no further attempt: one that Slurm requeues by itself has to be cancelled."""
    return Action.CANCEL if case.requeued or case.end.expedited else Action.NONE


def _hardware_fault(case: Case) -> Decision | None:
    reason = f"{_hardware(case)}: failover {case.count + 1} of {case.end.limit}{case.conflict}"
    return case.decision(Action.REQUEUE, JobState.FAILOVER_IN_PROGRESS, "hardware_fault", reason, counted=True)


def _hardware(case: Case) -> str:
    if not case.faults:
        return f"node {','.join(case.blamed)} went down"
    root = case.faults[0]
    return f"{root.cause} on {root.node}" + (f" GPU {root.pci}" if root.pci else "")


RULES: tuple[Callable[[Case], Decision | None], ...] = (
    _not_opted_in,
    _expedited,
    _requeued_by_slurm,
    _ended_well,
    _ended_by_slurm,
    _step_failed,
    _image_not_loaded,
    _no_hardware,
    _all_nodes_blame_themselves,
    _not_requeueable,
    _restrained,
    _hardware_fault,
)

"""Why an attempt ended, as one node sees it: `classify(evidence, exit_status)`, a table of rules tried in order.

Each rule answers with a Verdict or passes. Guilt (domain) and what the node needs (node_action) are separate answers:
a memory fault that the GPU contained kills the job and leaves the node usable, and a GPU may need a reset whoever is to
blame. Only hardware evidence makes a hardware verdict; silence makes `unknown`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from slurm_ft.classify.facts import Blame
from slurm_ft.classify.findings import Finding, Need, findings_of, need_of
from slurm_ft.classify.repeats import repeat_of, repeats
from slurm_ft.model import Certainty, Domain, EventKind, Evidence, ExitStatus, NodeAction, Scope, Verdict

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurm_ft.classify.overrides import Overrides
    from slurm_ft.classify.repeats import PastFault

KERNEL_LOG = "kernel_log"
SLURM_ENDINGS = ("time_limit", "cancelled", "preempted")
IMAGE_PULL = "image_pull"  # the cause that the user's documents call imagepullbackoff


@dataclass(frozen=True, slots=True)
class Case:
    """Everything the rules look at."""

    findings: tuple[Finding, ...]
    evidence: tuple[Evidence, ...]  # by sensor name, the kernel log first
    exit_status: ExitStatus
    need: Need
    history: Sequence[PastFault]  # what earlier jobs met on this node

    @property
    def node_action(self) -> NodeAction:
        """What the node needs: now, or once the same has happened to more jobs."""
        if self.need.drain or self.returned:
            return NodeAction.DRAIN
        faults = (one for one in self.findings if one.blame is Blame.HARDWARE and one.may_repeat)
        after = any(repeat_of(one.event) for one in faults)
        return NodeAction.DRAIN_AFTER_REPEAT if after else NodeAction.NONE

    @property
    def returned(self) -> int:
        """How many earlier jobs met a hardware fault that now came back; 0 if it did not."""
        faults = (one for one in self.findings if one.blame is Blame.HARDWARE and one.may_repeat)
        return max((repeats(one.event, self.history) for one in faults), default=0)

    def first(self, *blames: Blame) -> Finding | None:
        """The earliest finding with one of `blames`."""
        return next((finding for finding in self.findings if finding.blame in blames), None)


def classify(
    evidence: Sequence[Evidence],
    exit_status: ExitStatus,
    overrides: Overrides = MappingProxyType({}),
    history: Sequence[PastFault] = (),
) -> Verdict:
    """Judge one attempt on one node. Total and deterministic; the order of `evidence` does not matter.

    `overrides` is the site's own reading of single codes; `history` is what other jobs met on this node lately.
    """
    findings = findings_of(evidence, overrides)
    by_name = sorted(evidence, key=lambda one: (one.sensor != KERNEL_LOG, one.sensor, one.detail))
    case = Case(findings, tuple(by_name), exit_status, need_of(findings), history)
    for rule in RULES:
        verdict = rule(case)
        if verdict is not None:
            return verdict
    return no_hardware_signal(case)


def hardware_fault(case: Case) -> Verdict | None:
    """The first hardware cause in the window, even after an application code.

    Time order alone would acquit the hardware when a wild pointer (31) comes seconds before a GPU falls off the bus
    (79). No user code makes a GPU do that, or an uncorrectable memory error: such a cause beats an application code
    whatever the order. Among hardware causes the first is the root; the others follow from it (48, 63, 94, 45).
    """
    finding = case.first(Blame.HARDWARE)
    if finding is None:
        return None
    reason = f"{_located(finding)} is a hardware fault; {_what_follows(case)}."
    return Verdict(
        Domain.HARDWARE,
        finding.cause,
        "hardware_fault",
        reason,
        case.node_action,
        finding.scope,
        finding.certainty,
        finding.event,
        case.need.at_link,
    )


def image_not_loaded(case: Case) -> Verdict | None:
    """The container never started: whatever else the log holds, the program did not run."""
    finding = next((one for one in case.findings if one.cause == IMAGE_PULL), None)
    if finding is None:
        return None
    reason = f"{_located(finding)} ended the attempt before it began; {_what_follows(case)}."
    return Verdict(Domain.APPLICATION, IMAGE_PULL, "image_not_loaded", reason, case.node_action, decisive=finding.event)


def repeated_fault(case: Case) -> Verdict | None:
    """A code that is the program's, unless it comes back on the same GPU with every program: drain after repeat."""
    finding = case.first(Blame.APPLICATION, Blame.AMBIGUOUS)
    if finding is None or finding.blame is not Blame.APPLICATION or not finding.may_repeat:
        return None
    jobs = repeats(finding.event, case.history)
    if not jobs:
        return None
    reason = f"{_located(finding)} came back after {jobs} other jobs of several users; the node needs a drain."
    return Verdict(
        Domain.HARDWARE,
        f"{finding.cause}_repeated",
        "repeated_fault",
        reason,
        NodeAction.DRAIN,
        finding.scope,
        Certainty.LIKELY,
        finding.event,
    )


def application_fault(case: Case) -> Verdict | None:
    """An application cause came first, and all was read: nothing worse can have been missed.

    A program's own plain words (an exception, CUDA out of memory) stand even if a sensor was blind; words that a broken
    GPU can cause as well (an illegal access) need all of them.
    """
    finding = case.first(Blame.APPLICATION, Blame.AMBIGUOUS)
    if finding is None or finding.blame is not Blame.APPLICATION or not finding.complete:
        return None
    plain = finding.event.code is not None or finding.certainty is Certainty.CERTAIN
    if not plain and not all(one.readable for one in case.evidence):
        return None
    return Verdict(
        Domain.APPLICATION,
        finding.cause,
        "application_fault",
        f"{_located(finding)} is caused by the program in most cases, and no hardware fault was logged;"
        f" {_what_follows(case)}.",
        case.node_action,
        Scope.JOB,
        Certainty.LIKELY,
        finding.event,
    )


def evidence_unreadable(case: Case) -> Verdict | None:
    """A sensor that could not look did not see a clean node."""
    blind = next((one for one in case.evidence if not one.readable), None)
    if blind is None:
        return None
    reason = f"The sensor {blind.sensor} could not look ({blind.detail or 'no reason given'}), so nothing is known"
    return _unknown(case, f"{blind.sensor}_unreadable", "evidence_unreadable", f"{reason}; {_what_follows(case)}.")


def no_evidence(case: Case) -> Verdict | None:
    """No sensor was asked at all."""
    if case.evidence:
        return None
    return _unknown(case, "no_evidence", "no_evidence", "No sensor reported anything, so nothing is known.")


def ambiguous_code(case: Case) -> Verdict | None:
    """A code that hardware and programs can cause alike."""
    return _not_convicting(case, Blame.AMBIGUOUS, "ambiguous_code", "does not tell hardware from program")


def ended_by_slurm(case: Case) -> Verdict | None:
    """Slurm or a person ended it: nobody is to blame."""
    finding = next((one for one in case.findings if one.cause in SLURM_ENDINGS), None)
    if finding is None:
        return None
    reason = f"{_located(finding)} ended the job; {_what_follows(case)}."
    return _unknown(case, finding.cause, "ended_by_slurm", reason, finding)


def secondary_only(case: Case) -> Verdict | None:
    """Nothing but consequences and notices: Xid 45 follows every death, also scancel and a time limit."""
    return _not_convicting(case, Blame.NOBODY, "secondary_only", "is no cause by itself")


def clean_exit(case: Case) -> Verdict | None:
    """A good end and a clean log."""
    if not case.exit_status.success:
        return None
    return _unknown(case, "clean", "clean_exit", "The job ended well and no fault was logged.")


RULES: tuple[Callable[[Case], Verdict | None], ...] = (
    hardware_fault,
    image_not_loaded,
    repeated_fault,
    application_fault,
    no_evidence,
    evidence_unreadable,
    ambiguous_code,
    ended_by_slurm,
    secondary_only,
    clean_exit,
)


def no_hardware_signal(case: Case) -> Verdict:
    """What is left when no rule fires: the job failed and the sensors saw nothing."""
    notes = "; ".join(one.detail for one in case.evidence if one.detail)
    reason = f"The job ended with {case.exit_status} and no fault of the job's GPUs was logged"
    reason += f" ({notes})." if notes else "."
    return _unknown(case, f"exit{case.exit_status}", "no_hardware_signal", reason)


def _not_convicting(case: Case, blame: Blame, rule: str, reading: str) -> Verdict | None:
    finding = case.first(blame)
    if finding is None:
        return None
    return _unknown(case, finding.cause, rule, f"{_located(finding)} {reading}; {_what_follows(case)}.", finding)


def _unknown(case: Case, cause: str, rule: str, reason: str, decisive: Finding | None = None) -> Verdict:
    event = None if decisive is None else decisive.event
    return Verdict(Domain.UNKNOWN, cause, rule, reason, case.node_action, decisive=event)


def _located(finding: Finding) -> str:
    return f"{finding.what[0].upper()}{finding.what[1:]}{_where(finding)}"


def _where(finding: Finding) -> str:
    pci = finding.event.pci
    if finding.scope in (Scope.NODE, Scope.JOB) or finding.event.kind is EventKind.HOST:
        return f" on device {pci}" if pci else ""
    device = "NVSwitch" if finding.event.kind is EventKind.SXID else "GPU"
    return f" on {device} {pci}" if pci else f" on a {device} that the line does not name"


def _what_follows(case: Case) -> str:
    if case.node_action is NodeAction.DRAIN_AFTER_REPEAT:
        return "the node can stay in service until it comes back"
    if case.node_action is NodeAction.NONE:
        return "the node can stay in service"
    if case.returned and not case.need.drain:
        return f"it came back after {case.returned} other jobs, so the node needs a drain"
    return "the node needs a drain" + (f", its driver asks for {case.need.asked}" if case.need.asked else "")

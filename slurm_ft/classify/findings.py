"""Events -> findings: each event with what it says about the job and about the node, in time order."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_ft.classify.catalogue import RECOVERY_ACTIONS
from slurm_ft.classify.codes import CLEANUP, NVLINK5, XidFacts, nvlink5_facts, sxid_facts, xid_facts
from slurm_ft.classify.facts import Blame, fact_of
from slurm_ft.classify.message_text import nvlink5_registers, recovery_action, says_fatal
from slurm_ft.classify.overrides import apply_override
from slurm_ft.model import Certainty, Event, EventKind, Evidence, Scope

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurm_ft.classify.overrides import Overrides

RECOVERY_XID = 154
# A GPU under these stays usable: the job's process must go, the node need not.
_USABLE = ("RESTART_APP", "IGNORE")


@dataclass(frozen=True, slots=True)
class Finding:
    """One event, judged by itself. `complete` is False if its sensor could not read everything."""

    event: Event
    blame: Blame
    cause: str
    what: str  # "Xid 79 (NAME; NVIDIA's action: ...)"
    drains: bool = False  # the device is not usable before an admin acts
    scope: Scope = Scope.GPU
    certainty: Certainty = Certainty.CERTAIN
    complete: bool = True
    may_repeat: bool = True  # False: this site leaves the node in service however often it happens


def findings_of(evidence: Sequence[Evidence], overrides: Overrides) -> tuple[Finding, ...]:
    """Judge every event by itself; in time order, whatever the order of the evidence."""
    pairs = sorted(((event, one.readable) for one in evidence for event in one.events), key=_order)
    spoken = _spoken(event for event, _ in pairs)
    return tuple(apply_override(_finding(event, readable, spoken), overrides) for event, readable in pairs)


def _order(pair: tuple[Event, bool]) -> tuple[object, ...]:
    """Time first, then the place in the log; the rest only makes the order total."""
    event, readable = pair
    late = float("inf")
    at = late if event.at is None else event.at
    line = late if event.line is None else event.line
    return at, line, event.source, event.kind.value, event.code or 0, event.name, event.pci or "", readable


def _spoken(events: Iterable[Event]) -> dict[tuple[str | None, int | None], set[bool]]:
    """For each SXid code on each NVSwitch, what the driver said about its being fatal.

    One SXid takes several lines (`Fatal, Link ...`, `Severity ...`, `Data {...}`) and not all of them say so.
    """
    spoken: dict[tuple[str | None, int | None], set[bool]] = {}
    for event in events:
        if event.kind is EventKind.SXID:
            words = spoken.setdefault((event.pci, event.code), set())
            fatal = says_fatal(event)
            words.update(() if fatal is None else (fatal,))
    return spoken


def _finding(event: Event, readable: bool, spoken: dict[tuple[str | None, int | None], set[bool]]) -> Finding:
    if event.code is None:
        return _named(event, readable)
    if event.kind is EventKind.SXID:
        return _sxid(event, event.code, readable, spoken[event.pci, event.code])
    return _xid(event, event.code, readable)


def _named(event: Event, readable: bool) -> Finding:
    cause = event.name or event.kind.value
    fact = fact_of(event.kind, cause)
    return Finding(event, fact.blame, cause, fact.what, fact.drains, fact.scope, fact.certainty, readable)


def _sxid(event: Event, code: int, readable: bool, words: set[bool]) -> Finding:
    facts = sxid_facts(code)
    name = "not in NVIDIA's table" if facts is None else facts.name
    blame = _sxid_blame(code, words)
    return Finding(
        event,
        blame,
        f"sxid{code}",
        f"SXid {code} ({name})",
        drains=blame is Blame.HARDWARE,
        scope=Scope.FABRIC,
        complete=readable,
    )


def _sxid_blame(code: int, words: set[bool]) -> Blame:
    """The driver's own word goes first; where it and the table contradict each other nobody is convicted."""
    facts = sxid_facts(code)
    if facts is None:
        return Blame.AMBIGUOUS
    if True in words:
        return Blame.HARDWARE if facts.potentially_fatal else Blame.AMBIGUOUS
    if facts.always_fatal:
        return Blame.AMBIGUOUS if words else Blame.HARDWARE
    return Blame.AMBIGUOUS if facts.potentially_fatal and not words else Blame.NOBODY


def _xid(event: Event, code: int, readable: bool) -> Finding:
    facts = xid_facts(code)
    if facts is None:
        return Finding(
            event, Blame.AMBIGUOUS, f"xid{code}", f"Xid {code} (not in NVIDIA's catalogue)", complete=readable
        )
    blame, action = _xid_blame(event, code, facts)
    return Finding(
        event,
        blame,
        f"xid{code}",
        f"Xid {code} ({facts.name}{_action_text(action)})",
        drains=blame is Blame.HARDWARE and action not in _USABLE,
        scope=Scope.FABRIC if facts.kind == NVLINK5 else Scope.GPU,
        certainty=_certainty(facts),
        complete=readable,
    )


def _action_text(action: str | None) -> str:
    return "" if action is None else f"; NVIDIA's action: {action}"


def _xid_blame(event: Event, code: int, facts: XidFacts) -> tuple[Blame, str | None]:
    """Who is to blame, and NVIDIA's immediate action for this very line."""
    if facts.kind == CLEANUP or facts.fault_class == "info":
        # "caused by previous Xid N" in newer drivers' Xid 45 changes nothing: N has a line of its own, and if that is
        # not in the window it is not this attempt's.
        return Blame.NOBODY, facts.immediate
    if facts.kind == NVLINK5:
        return _nvlink5_blame(event, code, facts)
    if facts.unused and facts.fault_class == "hardware":
        return Blame.AMBIGUOUS, facts.immediate
    return Blame(facts.fault_class), facts.immediate


def _nvlink5_blame(event: Event, code: int, facts: XidFacts) -> tuple[Blame, str | None]:
    """Xid 144-150: only a row that asks for a reset convicts.

    "Nonfatal" does not mean that the job lives: some rows end the program although the GPU is well, and their cause
    may be on either end of the link, or in the program. They stay unknown.
    """
    registers = nvlink5_registers(event)
    row = registers and nvlink5_facts(code, registers.unit, registers.interrupt, registers.status)
    if not row:
        return Blame.AMBIGUOUS, facts.immediate
    if row.action == "RESET_GPU":
        return Blame.HARDWARE, row.action
    if row.application_dies or row.severity != "Non-fatal":
        return Blame.AMBIGUOUS, row.action
    return Blame.NOBODY, row.action


def _certainty(facts: XidFacts) -> Certainty:
    """Less than certain where the fault may be at the other end of a link, or in NVIDIA's firmware or driver."""
    elsewhere = facts.kind in ("nvlink", NVLINK5) or (facts.investigatory or "").startswith("INVESTIGATE_SW")
    return Certainty.LIKELY if elsewhere else Certainty.CERTAIN


@dataclass(frozen=True, slots=True)
class Need:
    """What the node needs at the end of the window.

    `asked` are the driver's own requests (Xid 154) in words. `at_link`: it needs a drain, and only for faults on links
    that the other end can cause.
    """

    drain: bool
    asked: str
    at_link: bool


def need_of(findings: Sequence[Finding]) -> Need:
    """Whether a device of the node is unusable at the end of the window.

    Xid 154 announces the GPU's new recovery action and so wins over the catalogue's for all that came before it on the
    same GPU; it can also go back to none. It is no cause: the driver repeats it on GPUs that are well.
    """
    needs: dict[str | None, bool] = {}
    asked: dict[str | None, int] = {}
    for finding in findings:
        device = finding.event.pci
        number = recovery_action(finding.event) if finding.event.code == RECOVERY_XID else None
        if number is not None:
            needs[device], asked[device] = number != 0, number
        else:
            needs[device] = needs.get(device, False) or finding.drains
    wanted = sorted({number for number in asked.values() if number})
    names = " and ".join(RECOVERY_ACTIONS.get(number, f"recovery action {number}") for number in wanted)
    drain = any(needs.values())
    own = any(finding.drains and not _at_link(finding) for finding in findings)
    return Need(drain, names, at_link=drain and not own and not wanted)


def _at_link(finding: Finding) -> bool:
    """Whether another node can cause it: NVLink between nodes, the network. NVSwitches that log SXids are the node's
    own, and so are the links of Xid 74 (Ampere and Hopper)."""
    return finding.scope is Scope.FABRIC and finding.event.kind is not EventKind.SXID

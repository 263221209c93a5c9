"""The nodes that we drained, and those that keep failing. Pure.

Slurm holds only the present: what a node did before it was returned stands in the controller's journal.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_ft.classify.advice import asked
from slurm_ft.failover import node_record
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Domain, NodeVerdict
from slurm_ft.slurm.protocol import NodeRecord

NOTHING = "-"
COLUMNS = ("NODE", "STATE", "SINCE", "CAUSE", "GPU", "JOB", "NVIDIA SAYS", "FAULTS", "JOBS", "NOTE")


@dataclass(frozen=True, slots=True)
class Fault:
    """One attempt that died of a node's hardware. `at` is unix seconds."""

    node: str
    raw_id: int
    attempt: int
    at: float
    cause: str
    pci: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node with its faults within the window, oldest first."""

    node: NodeRecord
    faults: tuple[Fault, ...]
    drained: bool  # now, by us

    @property
    def jobs(self) -> int:
        """How many jobs its faults have hit."""
        return len({fault.raw_id for fault in self.faults})

    @property
    def repeats(self) -> bool:
        """Whether it failed, came back into service, and failed again: every attempt is another one's fault."""
        return len(self.faults) > 1


def views(nodes: Sequence[NodeRecord], journal: Iterable[Entry], since: float) -> list[NodeView]:
    """Those that we drained, and those with several faults since that time; the worst first."""
    history = faults(nodes, journal, since)
    shown = []
    for node in nodes:
        own = tuple(fault for fault in history if fault.node == node.name)
        drained = node.draining and node_record.is_ours(node.reason)
        if drained or len(own) > 1:
            shown.append(NodeView(node, own, drained))
    return sorted(shown, key=lambda view: (-len(view.faults), view.node.name))


def faults(nodes: Sequence[NodeRecord], journal: Iterable[Entry], since: float) -> list[Fault]:
    """Each fault once: the watcher, the epilog and the journal may all tell of it. Those in a Reason have no bound."""
    told = [_of(verdict) for node in nodes for verdict in node_record.in_reason(node.reason, node.name)]
    told += [fault for fault in _journaled(journal) if fault.at >= since]
    once: dict[tuple[str, int, int], Fault] = {}
    for fault in told:
        once.setdefault((fault.node, fault.raw_id, fault.attempt), fault)
    return sorted(once.values(), key=lambda fault: fault.at)


def _of(verdict: NodeVerdict) -> Fault:
    return Fault(verdict.node, verdict.raw_id, verdict.attempt, verdict.at, verdict.cause, verdict.pci or "")


def _journaled(journal: Iterable[Entry]) -> Iterable[Fault]:
    for entry in journal:
        decision = entry.decision
        if entry.stage is Stage.DECIDED and decision is not None and decision.domain is Domain.HARDWARE:
            for node in decision.exclude:
                yield Fault(node, entry.key.raw_id, entry.key.attempt, entry.at, decision.cause)


def table(shown: Sequence[NodeView]) -> str:
    """Aligned columns, two blanks apart; an empty cell is a dash."""
    rows = [COLUMNS, *(_row(view) for view in shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def _row(view: NodeView) -> tuple[str, ...]:
    last = view.faults[-1] if view.faults else None
    return (
        view.node.name,
        "+".join(sorted(view.node.states)),
        time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(last.at)) if last else NOTHING,
        last.cause if last else NOTHING,
        (last.pci if last else "") or NOTHING,
        f"{last.raw_id}.{last.attempt}" if last else NOTHING,
        (asked(last.cause) if last else "") or NOTHING,
        str(len(view.faults)),
        str(view.jobs),
        "repeat offender" if view.repeats else NOTHING,
    )

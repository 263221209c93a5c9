"""The nodes that we drained, and those that keep failing. Pure.

Slurm holds only the present: what a node did before it was returned stands in the controller's journal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurm_ft.classify.advice import asked, in_words
from slurm_ft.failover import node_record
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Domain, NodeVerdict
from slurm_ft.slurm.protocol import NodeRecord
from slurm_ft.status import table as tables
from slurm_ft.status.fields import clock
from slurm_ft.status.table import PAPER, Column, Fitted, Screen

# What evidence of NVML says of a GPU: the address of a slot stays when its board is changed, this does not.
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Fault:
    """One attempt that died of a node's hardware. `at` is unix seconds."""

    node: str
    raw_id: int
    attempt: int
    at: float
    cause: str
    pci: str = ""
    text: str = ""  # the evidence line, shortened

    @property
    def uuid(self) -> str:
        """The GPU's, where the evidence line names it."""
        found = _UUID.search(self.text)
        return found[0] if found else ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node with its faults within the window, oldest first."""

    node: NodeRecord
    faults: tuple[Fault, ...]
    drained: bool  # now, by us

    @property
    def since(self) -> float | None:
        """When it was drained: at the first fault that its Reason tells of. None while it is in service."""
        told = node_record.in_reason(self.node.reason, self.node.name) if self.drained else ()
        return min((verdict.at for verdict in told), default=None)

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
    """Each fault once: the watcher, the epilog and the journal may all tell of it. Those in a Reason have no bound.

    A canary's is none: nothing was broken.
    """
    told = [_of(verdict) for node in nodes for verdict in node_record.in_reason(node.reason, node.name)]
    told += [fault for fault in _journaled(journal) if fault.at >= since]
    once: dict[tuple[str, int, int], Fault] = {}
    for fault in (one for one in told if node_record.CANARY not in one.text):
        once.setdefault((fault.node, fault.raw_id, fault.attempt), fault)
    return sorted(once.values(), key=lambda fault: fault.at)


def _of(verdict: NodeVerdict) -> Fault:
    return Fault(
        verdict.node, verdict.raw_id, verdict.attempt, verdict.at, verdict.cause, verdict.pci or "", verdict.text
    )


def _journaled(journal: Iterable[Entry]) -> Iterable[Fault]:
    for entry in journal:
        decision = entry.decision
        if entry.stage is Stage.DECIDED and decision is not None and decision.domain is Domain.HARDWARE:
            for node in decision.exclude:
                yield Fault(node, entry.key.raw_id, entry.key.attempt, entry.at, decision.cause, text=decision.text)


def table(shown: Sequence[NodeView], screen: Screen = PAPER) -> Fitted:
    """One row a node, about its last fault. An empty cell is a dash."""
    return tables.fit([_column(header, shown) for header in COLUMNS], screen)


def _column(header: str, shown: Sequence[NodeView]) -> Column:
    text, least, keep = COLUMNS[header]
    return Column(header, [tables.shown(text(view)) for view in shown], least, keep)


def _of_last(text: Callable[[Fault], str]) -> Callable[[NodeView], str]:
    return lambda view: text(view.faults[-1]) if view.faults else ""


# header -> the cell, and how narrow it may be cut and how long it is kept on a narrow terminal (tables.Column)
COLUMNS: Mapping[str, tuple[Callable[[NodeView], str], int, int]] = {
    "NODE": (lambda view: view.node.name, 0, 100),
    "STATE": (lambda view: "+".join(sorted(view.node.states)), 8, 60),
    "SINCE": (lambda view: clock(view.since), 10, 80),
    "CAUSE": (_of_last(lambda fault: fault.cause), 8, 90),
    "GPU": (_of_last(lambda fault: fault.pci), 0, 50),
    "JOB": (_of_last(lambda fault: f"{fault.raw_id}.{fault.attempt}"), 0, 40),
    "LAST_FAULT": (_of_last(lambda fault: clock(fault.at)), 10, 20),
    "NVIDIA_SAYS": (_of_last(lambda fault: in_words(asked(fault.cause))), 10, 85),
    "FAULTS": (lambda view: str(len(view.faults)), 0, 35),
    "JOBS": (lambda view: str(view.jobs), 0, 30),
    "NOTE": (lambda view: "repeat offender" if view.repeats else "", 8, 70),
    "GPU_UUID": (_of_last(lambda fault: fault.uuid), 12, 10),
}

r"""The brake: while it is on, no node is drained and no job is requeued, until an admin takes it off. Pure.

    [slurm_ft.brake paused 1764429940: root: new driver]                        `slurm-ft pause`
    [slurm_ft.brake breaker 1764429940: 13 of 128 nodes drained within 3600 s]  too many drains: the fault is elsewhere
    [slurm_ft.brake off 1764430000: root]                                       drains before this do not count any more

The mark stands in the Comment of a few nodes: there every hook of every node and of both controllers sees it in its
next look at Slurm, without a daemon or a shared directory, and only Slurm's own operators can write it. The newest one
counts. Drains are counted from the nodes' own Reasons, so nothing else has to be kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from slurm_ft.config import Config
from slurm_ft.failover import node_record
from slurm_ft.slurm.protocol import NodeRecord

CARRIERS = 3  # nodes that carry the mark, so that one deleted or overwritten does not lose it
FEW = 3  # nodes. So many may always be drained: of a small cluster one node is a large share
TEXT_LIMIT = 120
_MARK = re.compile(r" ?\[slurm_ft\.brake (?P<kind>paused|breaker|off) (?P<since>\d{1,12}): (?P<why>[^\[\]\n]*)\]")


class Kind(str, Enum):
    """Who put the brake on, or that it is off again."""

    PAUSED = "paused"
    BREAKER = "breaker"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Brake:
    """One mark. `since` is unix seconds, `why` one line for people."""

    kind: Kind
    since: float
    why: str

    def __str__(self) -> str:
        if self.kind is Kind.PAUSED:
            return f"failover is paused ({self.why})"
        return f"the breaker is open ({self.why})"


def in_force(nodes: Iterable[NodeRecord]) -> Brake | None:
    """The brake that is on now. `nodes` are all of the cluster's."""
    newest = _newest(nodes)
    return None if newest is None or newest.kind is Kind.OFF else newest


def tripped(nodes: Sequence[NodeRecord], blamed: Iterable[str], config: Config, now: float) -> Brake | None:
    """The brake that is to be put on, if `blamed` were drained besides those that we drained within the window."""
    allowed = _allowed(len(nodes), config)
    last = _newest(nodes)
    since = max(now - config.breaker_window, last.since if last else 0.0)
    drained = {node.name for node in nodes if _drained_by_us(node, since)} | set(blamed)
    if allowed is None or len(drained) <= allowed:
        return None
    why = f"{len(drained)} of {len(nodes)} nodes drained within {config.breaker_window:g} s, {allowed} are allowed"
    return Brake(Kind.BREAKER, now, why)


def _allowed(nodes: int, config: Config) -> int | None:
    bounds = [config.breaker_nodes] if config.breaker_nodes else []
    if config.breaker_percent:
        bounds.append(max(FEW, nodes * config.breaker_percent // 100))
    return min(bounds, default=None)


def _drained_by_us(node: NodeRecord, since: float) -> bool:
    """What only saw the far end of a link does not count: such nodes go back into service by themselves."""
    faults = node_record.in_reason(node.reason, node.name) if node.draining else ()
    return any(fault.at >= since and not fault.at_link for fault in faults)


def carriers(nodes: Sequence[NodeRecord]) -> tuple[NodeRecord, ...]:
    """The nodes whose Comment is to carry a new mark: those that carry one, and the first few."""
    marked = [node for node in nodes if _MARK.search(node.comment)]
    return tuple({node.name: node for node in (*marked, *nodes[:CARRIERS])}.values())


def write(comment: str, brake: Brake) -> str:
    """A node's Comment with this mark in place of any other; it stands first, and all else stays."""
    why = re.sub(r"[\[\]]|[^ -~]", "?", brake.why)[:TEXT_LIMIT]
    rest = _MARK.sub("", comment).removeprefix(" ")
    return f"[slurm_ft.brake {brake.kind.value} {brake.since:.0f}: {why}]" + (f" {rest}" if rest else "")


def _newest(nodes: Iterable[NodeRecord]) -> Brake | None:
    found = (match for node in nodes for match in _MARK.finditer(node.comment))
    marks = [Brake(Kind(match["kind"]), float(match["since"]), match["why"]) for match in found]
    return max(marks, key=lambda mark: mark.since, default=None)

"""What the journal and the nodes say, as Prometheus metrics. Pure, but for prometheus-client's own types.

Counters are counted anew from the journal each time. When it is rotated the second time (after some 14,000 decisions)
they fall back, which Prometheus takes for a restart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Action, Decision

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)  # seconds
RESTARTS = (Action.REQUEUE, Action.RECORD)


@dataclass(frozen=True, slots=True)
class Present:
    """What is so now. None where it is not known."""

    braked: str | None  # "", "paused" or "breaker"
    drained: int | None  # nodes, by us
    alerts_waiting: int | None


class Collector:
    """What prometheus-client asks for metrics."""

    def __init__(self, entries: Sequence[Entry], present: Present) -> None:
        self.entries = entries
        self.present = present

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        stages = _stages(self.entries)
        decisions = [found for by in stages if (found := by.get(Stage.DECIDED)) and found.decision]
        yield from _decided([entry.decision for entry in decisions if entry.decision])
        yield _seconds(
            "slurm_ft_decision_seconds",
            "From the first journal entry about an ended attempt to the decision, the node epilogs' time in it.",
            _between(stages, Stage.SEEN, Stage.DECIDED),
        )
        lost = _between(stages, Stage.SEEN, Stage.RELEASED)
        yield _seconds("slurm_ft_restart_seconds", "From an attempt's end to the release of its failover.", lost)
        yield from _now(self.present)


def _stages(entries: Iterable[Entry]) -> list[dict[Stage, Entry]]:
    """The first entry of each stage of each matter."""
    matters: dict[tuple[str, int, int, str], dict[Stage, Entry]] = {}
    for entry in entries:
        matters.setdefault(entry.matter, {}).setdefault(entry.stage, entry)
    return list(matters.values())


def _between(stages: Iterable[Mapping[Stage, Entry]], first: Stage, last: Stage) -> list[float]:
    return [max(by[last].at - by[first].at, 0.0) for by in stages if first in by and last in by]


def _decided(decisions: Sequence[Decision]) -> Iterator[Metric]:
    by_rule = Counter((one.rule, one.domain.value, one.action.value) for one in decisions)
    decided = CounterMetricFamily(
        "slurm_ft_decisions", "Decisions about ended attempts.", labels=("rule", "domain", "action")
    )
    for labels, number in sorted(by_rule.items()):
        decided.add_metric(labels, number)
    yield decided
    by_cause = Counter(one.cause for one in decisions if one.action in RESTARTS)
    failovers = CounterMetricFamily("slurm_ft_failovers", "Failovers, by what broke.", labels=("cause",))
    for cause, number in sorted(by_cause.items()):
        failovers.add_metric((cause,), number)
    yield failovers


def _seconds(name: str, what: str, values: Sequence[float]) -> Metric:
    counts = Counter(bisect_left(BUCKETS, value) for value in values)
    so_far, buckets = 0, []
    for place, bound in enumerate((*BUCKETS, float("inf"))):
        so_far += counts[place]
        buckets.append(("+Inf" if bound == float("inf") else str(bound), so_far))
    return HistogramMetricFamily(name, what, buckets=buckets, sum_value=sum(values))


def _now(present: Present) -> Iterator[Metric]:
    if present.braked is not None:
        brake = GaugeMetricFamily("slurm_ft_brake", "1 while this holds all failovers back.", labels=("kind",))
        for kind in ("paused", "breaker"):
            brake.add_metric((kind,), float(present.braked == kind))
        yield brake
    if present.drained is not None:
        yield GaugeMetricFamily("slurm_ft_drained_nodes", "Nodes drained by slurm_ft now.", present.drained)
    if present.alerts_waiting is not None:
        yield GaugeMetricFamily("slurm_ft_alerts_waiting", "Alerts not delivered yet.", present.alerts_waiting)

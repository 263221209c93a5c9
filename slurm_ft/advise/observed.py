"""What this cluster shows: how often nodes fail (the journal), and what saving costs (past checkpoints' files)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from slurm_ft.failover import node_record
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Domain

# Meta, 1,024 GPUs: 7.9 hours between failures (Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning
# Research Clusters", 2024). Eight GPUs a node.
PUBLISHED_NODE_HOURS = 7.9 * 128
FEW_FAILURES = 3  # fewer than these in a short time may be chance
FILES_LOOKED_AT = 10_000


@dataclass(frozen=True, slots=True)
class FailureRate:
    """`node_hours`: mean hours between two failures of one node. `source` says in words where the number is from."""

    node_hours: float
    source: str


@dataclass(frozen=True, slots=True)
class Saves:
    """What past checkpoints show. Seconds; None where there are too few of them."""

    count: int
    write_seconds: float | None  # from the first file of a checkpoint to its last one: a lower bound
    step_seconds: float | None
    interval_steps: int | None


def failure_rate(entries: Iterable[Entry], nodes: int, now: float) -> FailureRate | None:
    """The rate that a journal shows for a cluster of `nodes`; None from an empty one.

    Counted are nodes blamed for the end of an attempt, a canary's not. Without any, three failures per observed time:
    with 95 % confidence it is no more than that (the "rule of three"). A young journal shows nothing: without a failure
    the published rate holds until the bound is better, with a few until one was to be expected.
    """
    decided = [(entry.at, entry.decision) for entry in entries if entry.stage is Stage.DECIDED and entry.decision]
    if not decided or nodes < 1:
        return None
    hours = max((now - min(at for at, _ in decided)) / 3600, 1.0)
    hardware = [decision for _, decision in decided if decision.domain is Domain.HARDWARE]
    blamed = [decision for decision in hardware if node_record.CANARY not in decision.text]
    failures = sum(max(len(decision.exclude), 1) for decision in blamed)
    seen = f"{failures} node failures in {hours / 24:.1f} days on {nodes} nodes (journal)"
    node_hours = nodes * hours
    if failures < FEW_FAILURES and node_hours < PUBLISHED_NODE_HOURS * (1 if failures else 3):
        return published_rate(f"{seen} is too little to go by")
    if not failures:
        return FailureRate(node_hours / 3, f"{seen}: taken as three, an upper bound")
    return FailureRate(node_hours / failures, seen)


def published_rate(why: str = "this cluster has shown nothing yet") -> FailureRate:
    """What to assume where not enough has been observed yet."""
    return FailureRate(PUBLISHED_NODE_HOURS, f"Meta's published 7.9 h at 1,024 GPUs; {why}")


def saves(checkpoints: Sequence[tuple[int, Path]]) -> Saves:
    """What these checkpoints (step, path) show. Raises OSError when one cannot be read."""
    spans = [(step, *_span(path)) for step, path in sorted(checkpoints)]
    writes = [last - first for _, first, last in spans if last > first]
    paces = [
        ((later[2] - earlier[2]) / (later[0] - earlier[0]), later[0] - earlier[0])
        for earlier, later in pairwise(spans)
        if later[2] > earlier[2] and later[0] > earlier[0]
    ]
    return Saves(
        count=len(spans),
        write_seconds=median(writes) if writes else None,
        step_seconds=median(pace for pace, _ in paces) if paces else None,
        interval_steps=round(median(steps for _, steps in paces)) if paces else None,
    )


def _span(path: Path) -> tuple[float, float]:
    """When the first and the last file of a checkpoint were written, unix seconds."""
    times = [path.stat().st_mtime] if path.is_file() else []
    for directory, _, names in os.walk(path):
        times += [(Path(directory) / name).lstat().st_mtime for name in names[:FILES_LOOKED_AT]]
        if len(times) >= FILES_LOOKED_AT:
            break
    return (min(times), max(times)) if times else (0.0, 0.0)

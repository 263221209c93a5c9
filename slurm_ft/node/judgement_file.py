"""The node's record of what it judged and on what evidence, for `slurm-ft explain`: one JSON object a line.

Lives in the state directory as `judged/NODE.jsonl`, readable by its owner and group only: it holds lines of jobs'
output. Only failed attempts and faults come here, and the file is bounded: too large a one keeps its newer half.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_ft.model import Evidence, Verdict
from slurm_ft.state_file import open_plain, read_newest

SCHEMA_VERSION = 1
MAX_SIZE = 1 << 20  # bytes
MAX_LINES = 16  # of evidence from one sensor
MAX_TEXT = 300  # characters


@dataclass(frozen=True, slots=True)
class Seen:
    """What one sensor said. `lines` are (wall time or None, text); `readable` and `detail` are Evidence's."""

    sensor: str
    readable: bool
    detail: str
    lines: tuple[tuple[float | None, str], ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The epilog's verdict on one attempt (`job.restart`). `at` is unix seconds."""

    at: float
    attempt: str
    domain: str
    cause: str
    rule: str
    node_action: str
    reason: str
    seen: tuple[Seen, ...]


def path_of(state_dir: Path, node: str) -> Path:
    """Where the judgements of `node` are."""
    return state_dir / "judged" / f"{node}.jsonl"


def judgement(verdict: Verdict, evidence: Sequence[Evidence], attempt: str, *, now: float, uptime: float) -> Judgement:
    """The record of a verdict. `now` is unix seconds; `uptime`, in seconds, dates the events' own times. Pure."""
    boot = now - uptime
    seen = tuple(
        Seen(
            one.sensor,
            one.readable,
            one.detail[:MAX_TEXT],
            tuple(
                (None if event.at is None else round(boot + event.at, 3), event.source[:MAX_TEXT])
                for event in one.events[:MAX_LINES]
            ),
        )
        for one in evidence
    )
    action = verdict.node_action.value
    return Judgement(
        round(now, 3), attempt, verdict.domain.value, verdict.cause, verdict.rule, action, verdict.reason, seen
    )


def append(path: Path, one: Judgement, max_size: int = MAX_SIZE) -> None:
    """Add a judgement. Raises OSError."""
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    descriptor = open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        size += os.write(descriptor, b"\n" * torn + json.dumps(_to_json(one)).encode("ascii") + b"\n")
    finally:
        os.close(descriptor)
    if size > max_size:
        _halve(path, max_size // 2)


def _halve(path: Path, size: int) -> None:
    text = read_newest(path, size).partition(b"\n")[2]
    new = path.with_suffix(".new")
    descriptor = open_plain(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)
    new.replace(path)


def read(path: Path) -> list[Judgement]:
    """All readable judgements, oldest first; none if there is no file. Raises OSError."""
    text = read_newest(path, 2 * MAX_SIZE).decode("utf-8", "replace")
    parsed = (_parse(line) for line in text.splitlines())
    return [one for one in parsed if one is not None]


def _to_json(one: Judgement) -> dict[str, Any]:
    seen = [
        {"sensor": each.sensor, "readable": each.readable, "detail": each.detail, "lines": each.lines}
        for each in one.seen
    ]
    names = ("at", "attempt", "domain", "cause", "rule", "node_action", "reason")
    return {"v": SCHEMA_VERSION, **{name: getattr(one, name) for name in names}, "seen": seen}


def _parse(line: str) -> Judgement | None:
    try:
        value = json.loads(line)
        return Judgement(
            at=float(value["at"]),
            attempt=str(value["attempt"]),
            domain=str(value["domain"]),
            cause=str(value["cause"]),
            rule=str(value["rule"]),
            node_action=str(value["node_action"]),
            reason=str(value["reason"]),
            seen=_seen(value["seen"]),
        )
    except (ValueError, KeyError, TypeError, ArithmeticError, AttributeError, RecursionError):
        return None


def _seen(values: Any) -> tuple[Seen, ...]:
    return tuple(
        Seen(
            str(value["sensor"]),
            bool(value["readable"]),
            str(value["detail"]),
            tuple((None if at is None else float(at), str(text)) for at, text in value["lines"]),
        )
        for value in values
    )

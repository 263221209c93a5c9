"""The node's durable record of what the GPU driver said, kept by `slurm-ft watch`: one JSON object a line.

Lives in the state directory as `events/NODE.jsonl`. The epilog reads it where the kernel log has lost its beginning, or
was lost itself in a reboot. Each event names the attempts that had the GPU when it came (`job.restart`), so no clock is
needed to tell whose it was. The file is bounded: too large a one is written anew with the newest of each cause.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_ft.model import Event, EventKind, Evidence
from slurm_ft.state_file import open_plain, read_newest

SENSOR = "event_file"
SCHEMA_VERSION = 1
LIVE = -1  # the sequence of an event that came from another source than the kernel log: it is found nowhere else
MAX_SIZE = 1 << 20  # bytes
KEPT_PER_CAUSE = 8  # of one code on one device in one boot: a flood that a user can cause must not push others out
MAX_CAUSES = 1024  # different causes that are counted at a time


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event with its place in the log of its boot, the wall time of its reading, and the attempts it concerns."""

    boot_id: str
    sequence: int
    time: float
    event: Event
    attempts: tuple[str, ...] = ()


def path_of(state_dir: Path, node: str) -> Path:
    """Where the events of `node` are."""
    return state_dir / "events" / f"{node}.jsonl"


def append(path: Path, events: Sequence[RecordedEvent], max_size: int = MAX_SIZE) -> None:
    """Add `events` and return when they are on the disk. Raises OSError.

    Behind a line that a crash has torn it starts a new one.
    """
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    descriptor = open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        text = b"\n" * torn + _lines(events)
        _write(descriptor, text)
    finally:
        os.close(descriptor)
    if size + len(text) > max_size:
        _compact(path, max_size // 2)


def read(path: Path) -> list[RecordedEvent]:
    """All readable events, oldest first; none if there is no file. A torn line is passed over. Raises OSError."""
    text = read_newest(path, 2 * MAX_SIZE).decode("utf-8", "replace")
    parsed = (_parse(line) for line in text.splitlines())
    return [event for event in parsed if event is not None]


def evidence_of(
    path: Path, attempt: str, boot_id: str, boot_time: float, *, live_only: bool = False
) -> Evidence | None:
    """What was recorded of one attempt (`job.restart`), or None if there is nothing.

    `live_only` leaves out what the kernel log itself shows. Times of an earlier boot become negative: seconds before
    `boot_time`, the wall time of this boot.
    """
    try:
        every = [one for one in read(path) if attempt in one.attempts]
    except OSError as error:
        return Evidence(SENSOR, readable=False, detail=f"{path}: {error.strerror or error}")
    recorded = [one for one in every if one.sequence == LIVE or not live_only]
    if not recorded:
        return None
    events = tuple(one.event if one.boot_id == boot_id else _moved(one, boot_time) for one in recorded)
    return Evidence(SENSOR, readable=True, events=events, detail=f"{len(events)} recorded while the job ran")


def _moved(recorded: RecordedEvent, boot_time: float) -> Event:
    event = recorded.event
    return Event(event.kind, event.code, event.pci, event.source, recorded.time - boot_time, event.line, event.name)


def _write(descriptor: int, text: bytes) -> None:
    """One write, so that a reader sees whole lines; short ones happen on a full disk only."""
    if os.write(descriptor, text) < len(text):
        raise OSError(28, "No space left on device")
    os.fsync(descriptor)


def _lines(events: Iterable[RecordedEvent]) -> bytes:
    return b"".join(json.dumps(_to_json(one), separators=(",", ":")).encode("ascii") + b"\n" for one in events)


def _compact(path: Path, size: int) -> None:
    """Write the file anew with at most `size` bytes: of each cause the newest, and of those the newest."""
    kept: list[bytes] = []
    seen: dict[tuple[object, ...], int] = {}
    for one in reversed(read(path)):
        cause = (one.boot_id, one.event.kind, one.event.code, one.event.pci)
        seen[cause] = seen.get(cause, 0) + 1
        line = _lines((one,))
        if seen[cause] <= KEPT_PER_CAUSE and size >= len(line):
            kept.append(line)
            size -= len(line)
    new = path.with_suffix(".new")
    descriptor = open_plain(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        _write(descriptor, b"".join(reversed(kept)))
    finally:
        os.close(descriptor)
    new.replace(path)


def _to_json(recorded: RecordedEvent) -> dict[str, Any]:
    event = recorded.event
    return {
        "v": SCHEMA_VERSION,
        "boot": recorded.boot_id,
        "seq": recorded.sequence,
        "time": round(recorded.time, 3),
        "attempts": recorded.attempts,
        "kind": event.kind.value,
        "code": event.code,
        "pci": event.pci,
        "at": event.at,
        "name": event.name,
        "source": event.source,
    }


def _parse(line: str) -> RecordedEvent | None:
    try:
        return _from_json(json.loads(line))
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
        return None


def _from_json(value: dict[str, Any]) -> RecordedEvent:
    code, pci, at = value["code"], value["pci"], value["at"]
    event = Event(
        kind=EventKind(value["kind"]),
        code=None if code is None else int(code),
        pci=None if pci is None else str(pci),
        source=str(value["source"]),
        at=None if at is None else float(at),
        name=str(value["name"]),
    )
    attempts = tuple(str(name) for name in value["attempts"])
    return RecordedEvent(str(value["boot"]), int(value["seq"]), float(value["time"]), event, attempts)

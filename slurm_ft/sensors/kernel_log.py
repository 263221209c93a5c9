"""The kernel log sensor: what the GPU driver said about the job's own GPUs, and the kernel about the node.

Reads /dev/kmsg as one more reader; every open file has its own position, so nobody else loses a record. A log that
cannot be read, or whose window or GPUs are unknown, is never "clean": the Evidence then says `readable=False` and why.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from slurm_ft.model import Event, EventKind, Evidence
from slurm_ft.sensors.host_lines import HINTS
from slurm_ft.sensors.journal import journal_records
from slurm_ft.sensors.kernel_lines import MAX_LINE, Record, event_of, parse_record

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterator

SENSOR = "kernel_log"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MAX_RECORDS = 1_000_000  # more than the largest ring buffer a kernel can be built with (32 MiB) holds
JOURNAL_S = 10.0  # how long the journal may take
BATCH = 32  # records looked at together
LOST = b""  # stands for records that were overwritten before they were read
MAX_CAUSES = 128  # different codes on different devices
MAX_REPEATS = 8  # of one code on one device: a flood that a user can cause must not push another code out
_TELLING = (b";NVRM: ", b";nvidia-nvswitch", *HINTS)  # the records worth decoding, besides the marker
OF_THE_NODE = (EventKind.SXID, EventKind.HOST)  # every job on the node is concerned


@dataclass(frozen=True, slots=True)
class Window:
    """When the attempt ran, on the kernel log's clock. All times are seconds since boot.

    `marker` is the text that the node Prolog wrote into the log when the attempt started. Only it is exact: the
    kernel's print clock and the wall clock drift apart by minutes over weeks of uptime, so a time taken elsewhere
    finds the wrong place in the log, and an earlier job's Xid would convict this one. It must be written with its
    newline in one write: the kernel shows an open line to no reader.
    `start` is the uptime when the marker was written, `end` the uptime when the attempt ended; the driver may still
    report up to `grace` seconds later. `boot_id` is that of the start. None: not known.
    `since` is the uptime from which on lines count, if an earlier attempt of the job ran behind the same marker.
    """

    marker: str | None
    start: float | None
    end: float | None
    grace: float
    boot_id: str | None
    since: float | None = None


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    window: Window
    gpus: frozenset[str]
    first: Record | None = None
    marker_at: float | None = None
    lost: bool = False  # records were overwritten while we read
    kept: dict[tuple[EventKind, int | None, str, str | None], list[Event]] = field(default_factory=dict)

    def begin(self, at: float) -> None:
        """The marker was read: all that came before belongs to earlier jobs."""
        self.marker_at = at
        self.lost = False
        self.kept.clear()

    def covers(self, at: float) -> bool:
        """Whether a record of that time is inside the window. After the marker only the end bounds it."""
        start, end, since = self.window.start, self.window.end, self.window.since
        if self.marker_at is None:
            first = start if since is None else since
            return first is not None and at >= first and (end is None or at <= end + self.window.grace)
        since_marker = since is None or at >= since + self.drift
        return since_marker and (end is None or at <= end + self.drift + self.window.grace)

    def keep(self, event: Event) -> None:
        """Keep the first MAX_REPEATS - 1 of each code on each device, and the newest."""
        key = (event.kind, event.code, event.name, event.pci)
        if key not in self.kept and len(self.kept) >= MAX_CAUSES:
            return
        same = self.kept.setdefault(key, [])
        if same and same[-1].source == event.source:
            return
        del same[MAX_REPEATS - 1 :]
        same.append(event)

    def events(self) -> tuple[Event, ...]:
        """All kept events in the log's order, their times as uptimes."""
        kept = sorted((event for same in self.kept.values() for event in same), key=lambda event: event.line or 0)
        return tuple(event if event.at is None else replace(event, at=event.at - self.drift) for event in kept)

    @property
    def drift(self) -> float:
        """How far the print clock is ahead of the uptimes of the window, as the marker shows."""
        return 0.0 if self.marker_at is None or self.window.start is None else self.marker_at - self.window.start


def read_kernel_log(  # noqa: PLR0913 - the last three are bounds and a fact that only tests give
    path: Path,
    window: Window,
    gpus: frozenset[str] | None,
    *,
    budget_s: float = 2.0,
    boot_id: str | None = None,
    max_records: int = MAX_RECORDS,
    journal: Path | None = None,
) -> Evidence:
    """Read the attempt's window of the log at `path`: /dev/kmsg, or a file of raw records.

    `gpus` are the canonical PCI addresses of the job's GPUs, None if they are not known. `boot_id` is the running
    kernel's, by default read from /proc. Stops after `budget_s` seconds or `max_records`: what was found by then is
    in the Evidence, but `readable` is False. `journal` names the journalctl to ask when the log no longer reaches back
    to the attempt's start.
    """
    why_not = _why_not(window, gpus, boot_id)
    if gpus is None or why_not:
        return _unreadable(why_not)
    reading = _Reading(window, gpus)
    try:
        stopped = _read(path, reading, time.monotonic() + budget_s, max_records)
    except OSError as error:
        return _unreadable(f"{path}: {error.strerror or error}")
    if reading.first is None:
        return _unreadable(f"{path} {stopped or 'holds no kernel log record'}")
    if journal is not None and not stopped and _lost(reading):
        older = _from_journal(journal, window, gpus)
        if older is not None:
            return older
    return _evidence(reading, stopped)


def _why_not(window: Window, gpus: frozenset[str] | None, boot_id: str | None) -> str:
    """Why no log could tell anything about the attempt; empty if one could."""
    if gpus is None:
        return "it is not known which GPUs the job had"
    if window.marker is None and window.start is None:
        return "it is not known when the attempt started"
    if window.boot_id is not None and window.boot_id != (boot_id or running_boot()):
        return "the node was rebooted during the attempt"
    return ""


def _from_journal(journal: Path, window: Window, gpus: frozenset[str]) -> Evidence | None:
    """What the journal kept; None if it does not reach back to the attempt's start either."""
    reading, deadline = _Reading(window, gpus), time.monotonic() + JOURNAL_S
    try:
        stopped = _consume(journal_records(journal, window.start or 0.0, deadline), reading, deadline, MAX_RECORDS)
    except (OSError, ValueError):
        return None
    if stopped or reading.first is None or _lost(reading):
        return None
    found = _evidence(reading, "")
    return replace(found, detail="; ".join(note for note in ("taken from the journal", found.detail) if note))


def _unreadable(reason: str) -> Evidence:
    return Evidence(SENSOR, readable=False, detail=reason)


def running_boot() -> str:
    """The boot id of the running kernel, empty if it cannot be read."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _read(path: Path, reading: _Reading, deadline: float, max_records: int) -> str:
    """Read to the end of the log. Returns why it stopped earlier, or nothing."""
    # O_NONBLOCK: at its end /dev/kmsg would wait for the next record. O_NOCTTY: some containers put a console there.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as log:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            records = iter(lambda: log.readline(MAX_LINE), b"")
        else:
            records = _device_records(descriptor)
        return _consume(records, reading, deadline, max_records)


def _consume(records: Iterator[bytes], reading: _Reading, deadline: float, max_records: int) -> str:
    """Take all records. Returns why it stopped earlier, or nothing."""
    for number in range(0, max_records, BATCH):
        if time.monotonic() > deadline:
            return f"was given up after {number} records"
        batch = list(islice(records, min(BATCH, max_records - number)))
        _take_all(reading, batch, number)
        if len(batch) < BATCH and number + len(batch) < max_records:
            return ""
    return "" if next(records, None) is None else f"was given up after {max_records} records"


def _device_records(descriptor: int) -> Iterator[bytes]:
    """One record per read, until there is none left; LOST where some were overwritten."""
    while True:
        try:
            raw = os.read(descriptor, MAX_LINE)
        except BlockingIOError:
            return
        except BrokenPipeError:  # the record we stood at was overwritten; the next read goes on at the oldest one
            yield LOST
            continue
        if not raw:
            return
        yield raw


def _take_all(reading: _Reading, batch: list[bytes], before: int) -> None:
    """Look at some records; `before` were read earlier. Most batches hold nothing telling: one look at all of it."""
    joined = b"".join(batch)
    hints = [hint for hint in _TELLING if hint in joined]
    marked = reading.window.marker is not None and reading.window.marker.encode() in joined
    if hints or marked or reading.first is None or LOST in batch:
        for number, raw in enumerate(batch, start=before + 1):
            _take(reading, raw, number, hints)


def _take(reading: _Reading, raw: bytes, number: int, hints: list[bytes]) -> None:
    """Look at one record: the log's first, the marker, or one with a hint; all others pass undecoded."""
    if raw == LOST:
        reading.lost = True
        return
    marker = reading.window.marker
    may_be_marker = marker is not None and marker.encode() in raw
    telling = any(hint in raw for hint in hints)
    if reading.first is not None and not may_be_marker and not telling:
        return
    text = raw.partition(b"\n")[0].decode("utf-8", "replace")
    record = parse_record(text)
    if record is None:
        return
    reading.first = reading.first or record
    # The facility tells our marker from the kernel's own records, which may quote a text that a user chose.
    if may_be_marker and record.facility != 0 and record.message == marker:
        reading.begin(record.at)
    elif telling and reading.covers(record.at):
        _take_event(reading, event_of(record, record.message, number))


def _take_event(reading: _Reading, event: Event | None) -> None:
    # An event that names no device, or none of this job's, is no evidence: nodes are shared. An SXid is of an
    # NVSwitch, which serves all the GPUs of the node; a HOST event is of the node itself.
    if event is not None and (event.kind in OF_THE_NODE or event.pci in reading.gpus):
        reading.keep(event)


def _evidence(reading: _Reading, stopped: str) -> Evidence:
    """The Evidence of a log that could be opened, with what it may lack."""
    window = reading.window
    if stopped:
        return Evidence(SENSOR, readable=False, events=reading.events(), detail=f"the log {stopped}")
    found = window.marker is None or reading.marker_at is not None
    if not found and window.start is None:
        # Whether the marker was overwritten or never written cannot be told: older lines might convict this job.
        return _unreadable("the marker of the attempt's start is not in the log")
    lost = _lost(reading)
    if lost:  # what was overwritten may have been the fault: that is not a clean log
        return Evidence(SENSOR, readable=False, events=reading.events(), detail=lost)
    note = "" if found else f"the marker of the attempt's start is missing; took the lines from {window.start:.0f} s on"
    return Evidence(SENSOR, readable=True, events=reading.events(), detail=note)


def _lost(reading: _Reading) -> str:
    """Which records of the attempt have left the log; empty if none has."""
    start, first = reading.window.start, reading.first
    if start is not None and first is not None and reading.marker_at is None and first.at > start:
        return f"earlier lines were lost: the log begins {first.at:.0f} s after boot, after the attempt's start"
    return "some records were overwritten while they were read" if reading.lost else ""

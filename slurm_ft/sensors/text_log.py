"""A whole kernel log as text -> events, for judging offline: dmesg, syslog or `journalctl -k -o json`. Pure.

Lines may stand in any order a tool prints them, with any of its clocks. A message that repeats word for word counts
once, with the line it was first seen in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from slurm_ft.model import Event
from slurm_ft.sensors.host_lines import HINTS
from slurm_ft.sensors.journal_lines import journal_record
from slurm_ft.sensors.kernel_lines import event_of_message, parse_line
from slurm_ft.sensors.log_time import BOOT, DATE, LogTime, comparable, log_time

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# In each line that may be an event stands one of these; bytes.find is faster than any pattern.
TELLING = (b"NVRM: ", b"nvidia-nvswitch", *HINTS)
MAX_EVENTS = 100_000
GRACE_S = 300.0  # the driver may report this much later than the attempt's end
_REFUSED = re.compile(
    r"(?:dmesg: )?read kernel buffer failed|(?:dmesg|klogctl): .{0,60}Operation not permitted"
    r"|No journal files were opened due to insufficient permissions"
)


@dataclass(frozen=True, slots=True)
class TextWindow:
    """The attempt's start and end, each in the log's own clock; None: open."""

    start: LogTime | None = None
    end: LogTime | None = None


@dataclass(frozen=True, slots=True)
class _Dated:
    event: Event
    time: LogTime | None


def events_in_text(data: bytes, window: TextWindow | None = None) -> tuple[Event, ...]:
    """All events of a log, in the order in which they happened. `line` counts from 1."""
    return events_in_lines(_telling_lines(data), window)


def events_in_lines(lines: Iterable[tuple[int, str]], window: TextWindow | None = None) -> tuple[Event, ...]:
    """The same for numbered lines: `(1, "...")`."""
    found = [dated for dated in _dated(lines) if window is None or _inside(dated, window)]
    return _in_order(_once(found))


def refused(lines: Iterable[str]) -> str:
    """The line with which a tool says that it was not allowed to read the log; empty if there is none."""
    return next((line.strip() for line in lines if _REFUSED.match(line.strip())), "")


def _telling_lines(data: bytes) -> Iterator[tuple[int, str]]:
    """The lines that hold one of TELLING."""
    starts = sorted({data.rfind(b"\n", 0, place) + 1 for hint in TELLING for place in _places(data, hint)})
    number, counted = 1, 0
    for start in starts:
        number += data.count(b"\n", counted, start)
        counted = start
        end = data.find(b"\n", start)
        yield number, data[start : len(data) if end < 0 else end].decode("utf-8", "replace")


def _places(data: bytes, hint: bytes) -> Iterator[int]:
    """One place of `hint` in each line that has it."""
    place = data.find(hint)
    while place >= 0:
        yield place
        end = data.find(b"\n", place)
        place = data.find(hint, end) if end >= 0 else -1


def _dated(lines: Iterable[tuple[int, str]]) -> Iterator[_Dated]:
    """Each event with its time, or that of the line above it (`dmesg -e` prints differences)."""
    last: LogTime | None = None
    for number, text in lines:
        time, event = _read(text, number)
        last = time or last
        if event is not None:
            yield _Dated(event, last)


def _read(text: str, number: int) -> tuple[LogTime | None, Event | None]:
    if not text.startswith("{"):
        return log_time(text), parse_line(text, number)
    record = journal_record(text)
    if record is None:
        return None, None
    event = event_of_message(record.message, number)
    if record.wall is not None:
        return LogTime(DATE, record.wall), event
    return None if record.since_boot is None else LogTime(BOOT, record.since_boot), event


def _inside(dated: _Dated, window: TextWindow) -> bool:
    """A line without a time, or with one of another clock, cannot be told to be outside.

    Some syslogs print the seconds since boot behind their own time: those count for a window given in such seconds.
    """
    time, edge = dated.time, window.start or window.end
    if edge is not None and edge.clock == BOOT and dated.event.at is not None:
        time = LogTime(BOOT, dated.event.at)
    start, _, now = comparable((window.start, None, time)) if window.start and time else (None, None, None)
    if start is not None and now is not None and now < start:
        return False
    end, _, now = comparable((window.end, None, time)) if window.end and time else (None, None, None)
    return end is None or now is None or now <= end + GRACE_S


def _once(found: Sequence[_Dated]) -> list[_Dated]:
    seen: dict[tuple[object, ...], _Dated] = {}
    for dated in found[:MAX_EVENTS]:
        event = dated.event
        key = (event.kind, event.code, event.name, event.pci, _message(event.source))
        seen.setdefault(key, dated)
    return list(seen.values())


def _message(source: str) -> str:
    """The line behind its prefix, near enough to tell repetitions."""
    for start in ("NVRM: ", "nvidia-nvswitch"):
        place = source.find(start)
        if place >= 0:
            return source[place:]
    return source


def _in_order(found: Sequence[_Dated]) -> tuple[Event, ...]:
    """By time where there is one clock; the newest-first output of a tool is turned round where times are equal."""
    seconds = comparable([dated.time for dated in found])
    known = [second for second in seconds if second is not None]
    if not known or len(known) < len(seconds):
        return tuple(replace(dated.event, at=None) for dated in found)
    newest_first = known[0] > known[-1] and known == sorted(known, reverse=True)
    ranked = sorted(range(len(found)), key=lambda place: (known[place], -place if newest_first else place))
    # The rank goes into the time, so that equal times keep their order wherever they are sorted again.
    first = min(known)
    return tuple(
        replace(found[place].event, at=known[place] - first + rank * 1e-6) for rank, place in enumerate(ranked)
    )

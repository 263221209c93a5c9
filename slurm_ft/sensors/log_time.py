"""The time that stands before a line of a text log, in whatever clock the tool printed it. Pure.

Only for offline study: the live sensors read times that need no guess. A clock says which times can be compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence

BOOT, DATE, YEARLESS, CLOCK = "boot", "date", "yearless", "clock"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_HMS = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
_START = r"\s*(?:<[0-9]{1,3}>)?(?:[a-z]+ *:[a-z]+ *: |[0-9a-f.:]{2,45}: kern: +[a-z]+: )?\[?"
_RAW = re.compile(r"[0-9]{1,10},[0-9]{1,20},(?P<microseconds>[0-9]{1,20}),[^;\n]*;")
_BOOT = re.compile(r"(?:[a-z]+ *:[a-z]+ *: |<[0-9]{1,3}>)?\[ *(?P<seconds>[0-9]{1,12}(?:\.[0-9]{1,9})?)s?\]")
_BARE = re.compile(r"\s*(?P<seconds>[0-9]{1,12}(?:\.[0-9]{1,9})?)s?\s*\Z")
_DATES = (
    re.compile(
        rf"{_START}(?P<year>[0-9]{{4}})-(?P<number>[0-9]{{2}})-(?P<day>[0-9]{{2}})[T ]{_HMS}"
        r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?"
    ),
    re.compile(
        rf"{_START}(?:[A-Z][a-z]{{2}} )?{_MONTH} {{1,2}}(?P<day>[0-9]{{1,2}}) {_HMS}(?: [A-Z]{{3,4}})?"
        r" (?P<year>[0-9]{4})"
    ),
    re.compile(rf"{_START}(?:[A-Z][a-z]{{2}} )?{_MONTH} {{0,2}}(?P<day>[0-9]{{1,2}}) {_HMS}"),
    re.compile(rf"{_START}{_HMS}"),
)


@dataclass(frozen=True, slots=True)
class LogTime:
    """Seconds on one of the clocks of a log."""

    clock: str
    seconds: float


def log_time(text: str) -> LogTime | None:
    """The time before a log line, or the one that `text` is (an end of a window); None if there is none."""
    text = text[:200]
    raw = _RAW.match(text)
    if raw is not None:
        return LogTime(BOOT, int(raw["microseconds"]) / 1e6)
    for pattern in (_BOOT, _BARE):
        match = pattern.match(text)
        if match is not None:
            return LogTime(BOOT, float(match["seconds"]))
    for pattern in _DATES:
        match = pattern.match(text)
        if match is not None:
            return _date(match.groupdict())
    return None


def comparable(times: Sequence[LogTime | None]) -> list[float | None]:
    """The seconds of those times that stand on the first one's clock; one without its year can meet full dates."""
    known = [time for time in times if time is not None]
    if {time.clock for time in known} == {DATE, YEARLESS}:
        return _dated(times, next(time.seconds for time in known if time.clock == DATE))
    return [time.seconds if time is not None and time.clock == known[0].clock else None for time in times]


def _dated(times: Sequence[LogTime | None], reference: float) -> list[float | None]:
    """Each time without a year gets the one that brings it nearest to the last full date before it.

    `reference` stands in for that date at the beginning.
    """
    found: list[float | None] = []
    for time in times:
        if time is not None and time.clock == DATE:
            reference = time.seconds
        found.append(None if time is None else time.seconds if time.clock == DATE else _nearest(time, reference))
    return found


def _nearest(time: LogTime, reference: float) -> float:
    moment = datetime.fromtimestamp(time.seconds, timezone.utc)
    year = datetime.fromtimestamp(reference, timezone.utc).year
    candidates = [_in_year(moment, year + more) for more in (-1, 0, 1)]
    known = [seconds for seconds in candidates if seconds is not None]
    return min(known, key=lambda seconds: abs(seconds - reference), default=time.seconds)


def _in_year(moment: datetime, year: int) -> float | None:
    try:
        return moment.replace(year=year).timestamp()
    except ValueError:
        return None


def _date(parts: dict[str, str | None]) -> LogTime | None:
    fields = {name: int(parts[name] or 0) for name in ("hour", "minute", "second")}
    seconds = float(f"0.{parts['fraction'] or 0}")
    month = parts.get("month")
    number = _MONTHS.index(month) + 1 if month else int(parts.get("number") or 1)
    year = parts.get("year")
    try:
        moment = datetime(int(year or 2000), number, int(parts.get("day") or 1), **fields, tzinfo=_zone(parts))
    except ValueError:
        return None
    clock = DATE if year else YEARLESS if month else CLOCK
    return LogTime(clock, moment.timestamp() + seconds)


def _zone(parts: dict[str, str | None]) -> timezone:
    zone = parts.get("zone")
    if not zone or zone == "Z":
        return timezone.utc
    offset = datetime.strptime(zone, "%z").utcoffset()
    return timezone(offset) if offset else timezone.utc

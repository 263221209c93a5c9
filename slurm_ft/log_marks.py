"""Our lines that tell the attempts of a job apart in its one log: written as here, and read as here. Pure.

    ==== slurm_ft job 12 attempt 2/4 · restart 1 · node(s) n2 · excluded n1 · resume step 120 · 2026-11-29T15:40:01 ====
    slurm_ft: job 12 attempt 1/4 (restart 0) ended on n1: hardware xid79 "NVRM: Xid …"; n1 is drained
    slurm_ft: job 12 attempt 2/4 (restart 1) starts again: attempt 1/4 ended on n1 of xid79 "NVRM: Xid …"; …

The first is the banner of `slurm-ft run` and `slurm-ft resume`. The second is appended by the node Epilog of the batch
host, the third stands before the next attempt's own output. The log is its user's, who may write such lines too: they
are believed about this one job, and only for what is shown and where an attempt begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable

BANNER = "==== slurm_ft job "
OURS = "slurm_ft: job "
UNKNOWN = "?"
MAX_LINE = 600  # bytes of a line that is added to a log
MAX_QUOTE = 200  # characters of the evidence in it


class Kind(str, Enum):
    """What the line says of its attempt."""

    STARTS = "banner"
    AGAIN = "starts again"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Mark:
    """One such line. `attempt` is its number as text, `?` where it is not known; `restart` is None where not told."""

    kind: Kind
    job: str
    attempt: str
    restart: int | None


_BANNER = re.compile(
    rf"{BANNER}(?P<job>\S+)(?: attempt (?P<attempt>[0-9?-]+)\S*)?(?: · restart (?P<restart>[0-9]{{1,9}}))?"
)
_OURS = re.compile(
    rf"{OURS}(?P<job>[0-9]+) attempt (?P<attempt>[0-9?-]+)\S* \(restart (?P<restart>[0-9]{{1,9}})\) "
    rf"(?P<kind>{Kind.ENDED.value}|{Kind.AGAIN.value})\b"
)


def read(line: str) -> Mark | None:
    """The mark that the line is, if it is one."""
    found = _BANNER.match(line) or _OURS.match(line)
    if found is None:
        return None
    restart = found["restart"]
    kind = Kind.STARTS if found.re is _BANNER else Kind(found["kind"])
    return Mark(kind, found["job"], found["attempt"] or UNKNOWN, None if restart is None else int(restart))


def banner(parts: Iterable[str]) -> str:
    """The line that opens an attempt; the first part is `JOB attempt K/N`."""
    return f"{BANNER}{' · '.join(parts)} ===="


def ended(job: int, attempt: str, restart: int, what: str) -> str:
    """The line that closes an attempt: `what` says where and of what."""
    return _in_one_line(f"{_head(job, attempt, restart)} {Kind.ENDED.value} {what}")


def again(job: int, attempt: str, restart: int, why: str) -> str:
    """The line before an attempt that follows another one."""
    return _in_one_line(f"{_head(job, attempt, restart)} {Kind.AGAIN.value}: {why}")


def quote(evidence: str) -> str:
    """A line of evidence for one of ours: shortened, in quotes."""
    text = evidence.replace('"', "'")
    return f'"{text if len(text) <= MAX_QUOTE else text[: MAX_QUOTE - 1] + "…"}"'


def how_it_ended(line: str) -> str:
    """Of a line that closes an attempt: where and of what, without the evidence and what follows; "" for any other."""
    what = line.partition(f") {Kind.ENDED.value} ")[2]
    return _in_one_line(what.partition(' "')[0].partition(";")[0])[:MAX_QUOTE]


def as_bytes(line: str) -> bytes:
    """The line as it is appended to a log, bounded."""
    return line.encode("utf-8", "replace")[: MAX_LINE - 1].decode("utf-8", "ignore").encode() + b"\n"


def _in_one_line(text: str) -> str:
    """Evidence is text of the kernel's, or of anybody's: nothing in it ends the line, and no terminal obeys it."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _head(job: int, attempt: str, restart: int) -> str:
    return f"{OURS}{job} attempt {attempt} (restart {restart})"

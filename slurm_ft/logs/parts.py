"""A log in parts, one for each attempt. Pure but for the reading.

What divides it are our marks (slurm_ft/log_marks.py). A log without any is one part; where only some are there, what is
between them is divided as far as they tell.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from slurm_ft import log_marks
from slurm_ft.log_marks import BANNER, OURS, Kind, Mark

BLOCK = 4 << 20  # bytes read at once
LONGEST = 4096  # bytes of a line in which a mark is looked for


@dataclass(frozen=True, slots=True)
class Placed:
    """A mark and the bytes that its line takes, with its line break."""

    mark: Mark
    start: int
    end: int
    ended: str = ""  # what it says of the attempt's end


@dataclass(frozen=True, slots=True)
class Part:
    """The bytes of one attempt. `attempt` is its number as text, `?` if unknown; `job` is "" where no mark says.

    `marked`: its text begins with one of our marks, so that no heading is needed.
    """

    start: int
    end: int
    attempt: str = log_marks.UNKNOWN
    restart: int | None = None
    job: str = ""
    marked: bool = False
    ended: str = ""  # where and of what, if its end is marked


def find_marks(descriptor: int, end: int) -> Iterator[Placed]:
    """The marks in the first `end` bytes of a file. Raises OSError."""
    for at, text in _whole_lines(descriptor, end):
        for place in sorted(_begins(text, BANNER.encode()) + _begins(text, OURS.encode())):
            line_end = text.find(b"\n", place) + 1 or len(text)
            line = text[place : min(line_end, place + LONGEST)].decode("utf-8", "replace").rstrip("\n")
            if mark := log_marks.read(line):
                yield Placed(mark, at + place, at + line_end, log_marks.how_it_ended(line))


def _begins(text: bytes, word: bytes) -> list[int]:
    """The lines that begin with the word. Not a regular expression: that takes half a minute for a gigabyte."""
    found = [0] if text.startswith(word) else []
    place = text.find(b"\n" + word)
    while place >= 0:
        found.append(place + 1)
        place = text.find(b"\n" + word, place + 1)
    return found


def _whole_lines(descriptor: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The file in blocks that begin and end with a line, each with its offset.

    Of a line that is longer than a block some piece in its midst may begin a block: no mark is that long.
    """
    offset, rest = 0, b""
    while offset < end and (block := os.pread(descriptor, min(BLOCK, end - offset), offset)):
        at, text = offset - len(rest), rest + block
        offset += len(block)
        cut = len(text) if offset >= end else text.rfind(b"\n") + 1
        if not cut and len(text) > LONGEST:
            cut = len(text)
        yield at, text[:cut]
        rest = text[cut:]


def divide(marks: Iterable[Placed], size: int) -> list[Part]:
    """The parts of a file of `size` bytes, in its order; none is empty."""
    done: list[Part] = []
    part = Part(0, size)
    for placed in marks:
        mark = placed.mark
        if mark.kind is Kind.ENDED:
            done.append(replace(_named(part, mark), end=placed.end, ended=placed.ended))
            part = Part(placed.end, size)
        elif _begins_before(part, mark, placed.start):
            part = replace(_named(part, mark), marked=part.start == placed.start)
        elif not _same(part, mark):
            done.append(replace(part, end=placed.start))
            part = replace(_named(Part(placed.start, size), mark), marked=True)
    return [_numbered(part, place) for place, part in enumerate(_not_empty((*done, part)))]


def of_job(parts: Sequence[Part], job: str) -> list[Part]:
    """Those of one job, where several write into one file: what no mark names is left out then."""
    several = any(part.job not in ("", job) for part in parts)
    return [part for part in parts if part.job == job or not (part.job or several)]


def _begins_before(part: Part, mark: Mark, place: int) -> bool:
    """Whether the part is the mark's own: it begins there, or with what the script printed before the banner."""
    if part.job:
        return False
    preamble = mark.kind is Kind.STARTS and (part.start > 0 or not mark.restart)
    return part.start == place or preamble


def _same(part: Part, mark: Mark) -> bool:
    return (part.job, part.restart) == (mark.job, mark.restart)


def _named(part: Part, mark: Mark) -> Part:
    """The part with what the mark says, unless another mark has said it."""
    return part if part.job else replace(part, job=mark.job, attempt=mark.attempt, restart=mark.restart)


def _not_empty(parts: Iterable[Part]) -> Iterator[Part]:
    return (part for part in parts if part.start < part.end)


def _numbered(part: Part, place: int) -> Part:
    """A part without a number is numbered by its place: as good a guess as there is."""
    return part if part.attempt != log_marks.UNKNOWN else replace(part, attempt=str(place + 1))

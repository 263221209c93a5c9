"""Reading one file of a checkpoint at given places, and what a format checker returns.

A checker looks at the structure at once and hands back the bytes that a deep check has to read as `Span`s, so that
the spans of all files can be read in parallel, in any order, within one time budget.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..finding import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class DamagedError(Exception):
    """The content is not what its format says. Holds the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.reason)
        self.finding = finding


@dataclass(frozen=True, slots=True)
class Source:
    """An open file. Reads are at absolute places and may come from several threads."""

    descriptor: int
    name: str  # relative to the checkpoint, for reasons
    size: int  # bytes

    def at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`; fewer only at the end of the file."""
        if offset < 0 or offset >= self.size:
            return b""
        return os.pread(self.descriptor, min(length, self.size - offset), offset)

    def into(self, buffer: memoryview, offset: int) -> int:
        """Fill the buffer from `offset` and return how many bytes came."""
        done = 0
        while done < len(buffer):
            count = os.preadv(self.descriptor, [buffer[done:]], offset + done)
            if not count:
                break
            done += count
        return done


@contextmanager
def opened(path: Path, name: str) -> Iterator[Source]:
    """Open a regular file for reading; raises OSError as `os.open` does. Never waits for the writer of a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield Source(descriptor, name, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Values:
    """A stretch of one tensor whose numbers can be looked at."""

    offset: int  # in the file, bytes
    length: int
    dtype: str  # safetensors' names: F32, BF16 …
    name: str  # the tensor's


@dataclass(frozen=True, slots=True)
class Digest:
    """What the bytes of a span must hash to."""

    algorithm: str
    hexdigest: str


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes that a deep check reads in one piece, and what has to hold for them."""

    offset: int
    length: int
    label: str  # for reasons: the record or the file
    crc: int | None = None  # CRC-32, as zip has it
    digest: Digest | None = None
    values: tuple[Values, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """What a checker found at once, and what is left to read for a deep check. No spans at lower levels."""

    findings: tuple[Finding, ...] = ()
    spans: tuple[Span, ...] = ()


Checker: TypeAlias = Callable[[Source, Level], Checked]

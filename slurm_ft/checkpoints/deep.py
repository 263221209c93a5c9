"""Read every byte that a deep check needs, in parallel, within a time budget and a fixed amount of memory.

Hashing, CRC and reading all release the interpreter's lock, so threads are enough.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from threading import local
from typing import TYPE_CHECKING

from .crc32 import crc32
from .finding import VALID, Finding, corrupt, incomplete
from .formats.source import Source, Span, Values, opened
from .manifest import hasher
from .values import Look, Odd, look

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from .progress import Progress

PIECE_BYTES = 1 << 20  # each thread holds one; it stays in the processor's cache for all that looks at it
MOST_THREADS = 8
AHEAD = 4  # spans queued per thread: enough to keep it busy


@dataclass(frozen=True, slots=True)
class Reading:
    """The spans of one file."""

    name: str
    path: Path
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the reading found: (file, finding) for each bad span, and how many bytes were read."""

    findings: tuple[tuple[str, Finding], ...]
    read: int
    total: int

    @property
    def complete(self) -> bool:
        """False if the budget ended first."""
        return self.read == self.total


@dataclass(frozen=True, slots=True)
class _Result:
    name: str
    length: int
    finding: Finding
    looks: tuple[tuple[Values, Look], ...] = ()


def threads() -> int:
    """How many to use: the CPUs that this process may use."""
    return max(1, min(MOST_THREADS, len(os.sched_getaffinity(0))))


def read_all(readings: Sequence[Reading], progress: Progress, deadline: float | None) -> Outcome:
    """Read until done or `deadline` (time.monotonic). Raises OSError when the storage does not answer."""
    total = sum(span.length for reading in readings for span in reading.spans)
    findings: list[tuple[str, Finding]] = []
    zeros = _Zeros()
    read = 0
    for result in _results(readings, deadline):
        read += result.length
        progress.advance(result.length)
        zeros.note(result)
        if result.finding is not VALID:
            findings.append((result.name, result.finding))
    if read == total:
        findings.extend(zeros.findings())
    return Outcome(tuple(findings), read, total)


def _results(readings: Sequence[Reading], deadline: float | None) -> Iterator[_Result]:
    """Run the spans, never with more than a few queued: a large checkpoint has hundreds of thousands."""
    buffers = local()
    jobs = ((reading, span) for reading in readings for span in reading.spans)
    count = threads()
    with ThreadPoolExecutor(count) as pool:
        running: set[Future[_Result]] = set()
        while True:
            late = deadline is not None and time.monotonic() > deadline
            for reading, span in () if late else islice(jobs, count * AHEAD - len(running)):
                running.add(pool.submit(_read, reading, span, buffers))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def _read(reading: Reading, span: Span, buffers: local) -> _Result:
    if not hasattr(buffers, "view"):
        buffers.view = memoryview(bytearray(PIECE_BYTES))
    try:
        with opened(reading.path, reading.name) as source:
            finding, looks = _check(source, span, buffers.view)
    except FileNotFoundError:
        finding, looks = incomplete("it vanished during the check"), ()
    return _Result(reading.name, span.length, finding, tuple(looks))


def _check(source: Source, span: Span, buffer: memoryview) -> tuple[Finding, Sequence[tuple[Values, Look]]]:
    crc = 0
    looks: list[tuple[Values, Look]] = []
    digest = hasher(span.digest.algorithm) if span.digest else None
    for offset, content in _chunks(source, span, buffer):
        if span.crc is not None:
            crc = crc32(content, crc)
        if digest is not None:
            digest.update(content)
        looks.extend(_look(span.values, offset, content))
    if offset + len(content) < span.offset + span.length:
        return incomplete("truncated during the check"), ()
    if digest and span.digest and digest.hexdigest() != span.digest.hexdigest:
        return corrupt(f"{span.label} at byte {span.offset} fails its digest"), ()
    if span.crc is not None and crc != span.crc:
        return corrupt(f"{span.label} fails its checksum"), ()
    return _odd(looks), looks


def _chunks(source: Source, span: Span, buffer: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield (offset, content) pieces; a short one ends it."""
    place, end = span.offset, span.offset + span.length
    while place < end:
        wanted = min(len(buffer), end - place)
        count = source.into(buffer[:wanted], place)
        yield place, buffer[:count]
        if count < wanted:
            return
        place += count


def _look(values: Sequence[Values], offset: int, content: memoryview) -> Iterator[tuple[Values, Look]]:
    """Look at the stretches of the tensors that lie in this piece."""
    for stretch in values:
        start = max(stretch.offset, offset)
        end = min(stretch.offset + stretch.length, offset + len(content))
        if start < end:
            yield stretch, look(content[start - offset : end - offset], stretch.dtype)


def _odd(looks: Sequence[tuple[Values, Look]]) -> Finding:
    """NaN is damage wherever it is; infinity has a use in attention masks that are saved with a model."""
    for stretch, seen in looks:
        if seen.odd is Odd.NAN or (seen.odd is Odd.INFINITE and "mask" not in stretch.name):
            return corrupt(f"tensor {stretch.name} has {seen.odd.value}")
    return VALID


@dataclass
class _Tensor:
    """What was seen of one tensor so far; its stretches come in any order."""

    alive: bool = False  # some byte is not 0
    zero_end: bool = False
    end: int = -1  # where its last stretch lies


class _Zeros:
    """Looks for zeros that no training writes.

    One tensor of zeros is common (a LoRA's B at the start, a bias). A file of nothing else is a lost write, and so are
    zeros that begin inside a tensor and go on over whole tensors to the end of the file.
    """

    def __init__(self) -> None:
        self.files: dict[str, dict[str, _Tensor]] = {}

    def note(self, result: _Result) -> None:
        tensors = self.files.setdefault(result.name, {})
        for stretch, seen in result.looks:
            tensor = tensors.setdefault(stretch.name, _Tensor())
            tensor.alive |= not seen.zero
            if stretch.offset >= tensor.end:
                tensor.end, tensor.zero_end = stretch.offset, seen.zero_end

    def findings(self) -> Iterator[tuple[str, Finding]]:
        for name, tensors in self.files.items():
            order = sorted(tensors, key=lambda tensor: tensors[tensor].end, reverse=True)
            last = next((place for place, tensor in enumerate(order) if tensors[tensor].alive), None)
            if order and last is None:
                yield name, corrupt("every value of its tensors is zero: its content was lost")
            elif last and tensors[order[last]].zero_end:
                yield name, corrupt(f"zeros from inside tensor {order[last]} to the end: its content was lost")


def run(readings: Sequence[Reading], progress: Progress, deadline: float | None, name: str) -> Outcome:
    """Read all, telling `progress` about it."""
    progress.start(name, sum(span.length for reading in readings for span in reading.spans))
    try:
        return read_all(readings, progress, deadline)
    finally:
        progress.stop()

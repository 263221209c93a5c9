"""The host pool: page-aligned buffers of one chunk each, taken from slabs that are kept and used again.

Fresh memory is what makes a copy slow (2.9 GB/s into fresh pages, 9.4 GB/s into used ones on the machine of the
measurements), so nothing is given back before `close`. Slabs appear only when a buffer is needed: the limit is a
ceiling, never an allocation. A forked child (a dataloader worker) does not get them.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

SLAB_CHUNKS = 8  # a slab is one mapping: 64 MiB of 8 MiB buffers
PAGE = mmap.PAGESIZE


class Pinner(Protocol):
    """Page-locks memory, so that a GPU copies into it without the CPU."""

    def prepare(self) -> None:
        """Called on the training's thread before `pin` is called on another."""
        ...

    def pin(self, address: int, length: int) -> bool:
        """Return whether the memory is now page-locked."""
        ...

    def unpin(self, address: int) -> None:
        """Undo `pin`."""
        ...


@dataclass(eq=False, frozen=True, slots=True)
class Buffer:
    """One chunk's worth of memory; `view` for writing and hashing, `address` for copying into it."""

    address: int
    view: memoryview


class Slab:
    """One mapping, cut into buffers."""

    def __init__(self, chunk: int, count: int, pinner: Pinner | None = None) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._map = mmap.mmap(-1, chunk * count, flags=flags)
        for advice in ("MADV_DONTFORK", "MADV_HUGEPAGE"):
            _advise(self._map, advice)
        self._anchor = ctypes.c_char.from_buffer(self._map)
        start = ctypes.addressof(self._anchor)
        whole = memoryview(self._map)
        self.size = chunk * count
        self.buffers = [Buffer(start + i * chunk, whole[i * chunk : (i + 1) * chunk]) for i in range(count)]
        self._pinner = pinner if pinner is not None and pinner.pin(start, self.size) else None

    def unpin(self) -> None:
        """Give the page lock back; the memory goes with the last reference."""
        if self._pinner is not None:
            self._pinner.unpin(self.buffers[0].address)


class Pool:
    """Buffers up to a limit. Thread-safe; never waits: who finds it empty decides what to do."""

    def __init__(self, chunk: int, limit: int, pinner: Pinner | None = None) -> None:
        self.chunk = chunk
        self.limit = limit
        self._pinner = pinner
        self._lock = threading.Lock()
        self._free: list[Buffer] = []
        self._slabs: list[Slab] = []
        self._used = 0
        self._expected = 0
        self._closed = False
        self.peak = 0  # bytes in use at once, at most

    def take(self) -> Buffer | None:
        """Return a free buffer; None if the limit is reached."""
        with self._lock:
            if not self._free and not self._grow():
                return None
            self._used += 1
            self.peak = max(self.peak, self._used * self.chunk)
            return self._free.pop()

    def give_back(self, buffers: Sequence[Buffer]) -> None:
        """Return buffers that nobody reads any more."""
        with self._lock:
            self._free.extend(buffers)
            self._used -= len(buffers)

    def expect(self, size: int) -> None:
        """Page-lock that many bytes more, in a thread of its own: a GiB takes a third of a second, and the first save
        need not wait for it. Without a GPU nothing is taken ahead.
        """
        if self._pinner is None or not size:
            return
        self._expected += size
        self._pinner.prepare()
        threading.Thread(target=self._warm, args=(self._expected,), name="datastates-pool", daemon=True).start()

    def _warm(self, size: int) -> None:
        while self.allocated < min(size, self.limit):
            with self._lock:
                if self._closed or not self._grow():
                    return

    @property
    def allocated(self) -> int:
        """Bytes that the pool holds, used or not."""
        with self._lock:
            return sum(slab.size for slab in self._slabs)

    def close(self) -> None:
        """Let go of all memory. No buffer may be in use."""
        with self._lock:
            self._closed = True
            slabs, self._slabs, self._free = self._slabs, [], []
        for slab in slabs:
            slab.unpin()

    def _grow(self) -> bool:
        held = sum(slab.size for slab in self._slabs)
        count = min(SLAB_CHUNKS, (self.limit - held) // self.chunk)
        if count < 1:
            return False
        slab = Slab(self.chunk, count, self._pinner)
        self._slabs.append(slab)
        self._free.extend(reversed(slab.buffers))
        return True


def _advise(mapping: mmap.mmap, name: str) -> None:
    advice = getattr(mmap, name, None)
    if advice is None:
        return
    try:
        mapping.madvise(advice)
    except OSError:  # a kernel without transparent huge pages
        return

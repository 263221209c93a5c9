"""What a file will contain, before it is written: extents of memory, cut into chunks.

A chunk is the unit of everything: it is assembled in one buffer, hashed there and written from there. Nothing else of a
file exists in memory, so a tensor that fits into no pool still streams through one buffer.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .device import copies_of
from .errors import TornError
from .hashing import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from .device import Copies, Device

# Below this a copy at capture is cheaper than keeping track of the tensor.
SMALL = 64 << 10


@dataclass(eq=False, slots=True)
class Region:
    """Bytes in memory that go into a file as they are.

    `private`: nobody but the engine can change them. `identity` tells tensors of one storage. `device` copies from
    memory that the host cannot read.
    """

    size: int
    address: int
    keep: Any  # what keeps the memory alive
    private: bool
    identity: int = 0
    device: Device | None = None

    def check(self) -> None:
        """Raise TornError if the storage was resized or moved since the capture: the address is no longer its."""
        if not self.private and (self.keep.data_ptr() != self.address or self.keep.nbytes() < self.size):
            raise TornError("a tensor's storage was freed or moved while it was being saved", "Set copy: eager")


def private_copy(content: bytes | bytearray | memoryview) -> Region:
    """Return a region that holds its own copy of the bytes."""
    own = bytearray(content)
    anchor = (ctypes.c_char * len(own)).from_buffer(own)
    return Region(len(own), ctypes.addressof(anchor), anchor, private=True)


@dataclass(frozen=True, slots=True)
class Extent:
    """`length` bytes of a file at `offset`, found at `start` of a region."""

    offset: int
    length: int
    region: Region
    start: int = 0


@dataclass(eq=False, slots=True)
class FileImage:
    """A file of `size` bytes. What no extent covers is zeros. `tensors`: name to dtype and shape, where known."""

    path: Path
    size: int
    extents: Sequence[Extent]
    tensors: dict[str, list[Any]] = field(default_factory=dict)
    _starts: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.extents = sorted(self.extents, key=lambda extent: extent.offset)
        self._starts = [extent.offset for extent in self.extents]

    @property
    def chunk_count(self) -> int:
        """The number of chunks; an empty file has none."""
        return -(-self.size // CHUNK_BYTES)

    def chunk_length(self, index: int) -> int:
        """The bytes of one chunk; only the last one may be short."""
        return min(CHUNK_BYTES, self.size - index * CHUNK_BYTES)

    def pieces(self, index: int) -> Iterator[Extent]:
        """Return the parts of a chunk, in order, their offsets counted from the chunk's start."""
        first, length = index * CHUNK_BYTES, self.chunk_length(index)
        at = max(bisect_right(self._starts, first) - 1, 0)
        for extent in self.extents[at:]:
            if extent.offset >= first + length:
                return
            begin, end = max(extent.offset, first), min(extent.offset + extent.length, first + length)
            if begin < end:
                yield Extent(begin - first, end - begin, extent.region, extent.start + begin - extent.offset)

    def let_go(self) -> None:
        """Forget the memory: every chunk has been copied, and gathered tensors need not live until all is written."""
        self.extents, self._starts = [], []

    def regions(self, index: int) -> list[Region]:
        """Return the regions that a chunk reads."""
        return [piece.region for piece in self.pieces(index)]

    def assemble(self, index: int, address: int) -> Copies | None:
        """Copy a chunk's bytes to an address that has room for them.

        Returns the copies from GPUs that are still under way; None when all bytes are there.
        """
        position, devices = 0, set()
        for piece in self.pieces(index):
            region = piece.region
            region.check()
            if piece.offset > position:
                ctypes.memset(address + position, 0, piece.offset - position)
            if region.device is None:
                ctypes.memmove(address + piece.offset, region.address + piece.start, piece.length)
            else:
                region.device.copy(region.keep, piece.start, piece.length, address + piece.offset)
                devices.add(region.device)
            position = piece.offset + piece.length
        if position < self.chunk_length(index):
            ctypes.memset(address + position, 0, self.chunk_length(index) - position)
        return copies_of(devices)

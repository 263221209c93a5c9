"""The pickle stream that torch wrote before version 1.6, and writes when asked for: no zip, no checksums.

Five pickles (magic number, protocol, system, the object tree, the storages' keys), then each storage as its number of
elements and its bytes (torch/serialization.py, `_legacy_save`). So its length can be computed.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from ..finding import VALID, Finding, Level, incomplete, inconsistent, note
from . import stub_pickle
from .source import Checked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from _typeshed import WriteableBuffer

    from .source import Source

# A pickle of protocol 2 holding torch's magic number 0x1950a86a20f9469cfc6c.
LEGACY_MAGIC = bytes.fromhex("80 02 8a 0a 6c fc 9c 46 f9 20 6a a8 50 19")
NO_CHECKSUMS = "written in torch's old pickle format, which has no checksums"
PICKLES = 5


class _Window(io.RawIOBase):
    """The beginning of a source as a file: pickles are read from nowhere else."""

    def __init__(self, source: Source, limit: int) -> None:
        self.source, self.limit, self.place = source, limit, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self.place = offset + (0, self.place, self.limit)[whence]
        return self.place

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer)
        content = self.source.at(self.place, min(len(view), self.limit - self.place))
        view[: len(content)] = content
        self.place += len(content)
        return len(content)


def check_torch_legacy(source: Source, level: Level) -> Checked:
    """Judge a legacy file: from the structural level on, its length against the storages that it names."""
    if level is Level.QUICK:
        return Checked((note(NO_CHECKSUMS),))
    try:
        _, storages, end = read_stream(source)
    except stub_pickle.OpaqueError:
        return Checked((_opaque(source),))
    return Checked((_length(source, storages, end), note(NO_CHECKSUMS)))


def read_stream(source: Source) -> tuple[Any, dict[str, stub_pickle.StorageStub], int]:
    """Return the object tree, the storages by key, and where their bytes begin. Raises OpaqueError."""
    file = io.BufferedReader(_Window(source, stub_pickle.MOST_PICKLE_BYTES), 65536)
    loaded = [stub_pickle.load(file) for _ in range(PICKLES)]
    return loaded[3], {stub.key: stub for stub in _storages(loaded[3])}, file.tell()


def _storages(tree: Any) -> Iterator[stub_pickle.StorageStub]:
    todo, seen = [tree], set()
    while todo:
        item = todo.pop()
        if isinstance(item, stub_pickle.TensorStub):
            yield item.storage
        elif isinstance(item, stub_pickle.StorageStub):
            yield item
        elif id(item) not in seen:
            seen.add(id(item))
            todo.extend(_inside(item))


def _inside(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return list(item.values())
    if isinstance(item, (list, tuple)):
        return list(item)
    return [*item.args, item.state, *item.items] if isinstance(item, stub_pickle.Stub) else []


def _length(source: Source, storages: dict[str, stub_pickle.StorageStub], start: int) -> Finding:
    sizes = [stub_pickle.ITEM_BYTES.get(stub.dtype) for stub in storages.values()]
    if None in sizes:
        return VALID
    end = start + sum(8 + stub.numel * (size or 0) for stub, size in zip(storages.values(), sizes, strict=True))
    if source.size < end:
        return incomplete(f"truncated: {source.size} bytes where its tensors need {end}")
    return VALID if source.size == end else inconsistent(f"{source.size} bytes where its tensors need {end}")


def _opaque(source: Source) -> Finding:
    """A short file whose pickles end early was cut; a long one has a tree that is too large to follow."""
    if source.size < stub_pickle.MOST_PICKLE_BYTES:
        return incomplete("truncated: its pickles end early or are damaged")
    return note(NO_CHECKSUMS)

"""torch.distributed.checkpoint: `.metadata`, written last, says where in which `.distcp` file each piece lies.

So a missing, short or foreign storage file is found without torch: for each file the greatest offset + length is its
size, and the volumes of a tensor's pieces add up to its own. Each piece is a torch zip with checksums of its own.
Classes: torch/distributed/checkpoint/metadata.py, filesystem.py (`_StorageInfo`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ..finding import Finding, Level, corrupt, incomplete, inconsistent, note
from . import stub_pickle
from .source import Checked, DamagedError, opened
from .torch_zip import check_torch_zip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import Files

METADATA = ".metadata"
STORAGE = ".distcp"


@dataclass(frozen=True, slots=True)
class Piece:
    """Where one piece of the state lies."""

    tensor: str
    file: str  # relative to the metadata
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """What `.metadata` says, as far as a check needs it."""

    pieces: tuple[Piece, ...]
    tensors: dict[str, tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]]  # name -> (size, the sizes of its pieces)
    names: tuple[str, ...]  # every entry of the state dict


def check_dcp(files: Files, level: Level) -> Iterator[tuple[str, Checked]]:
    """Judge every DCP directory of the checkpoint."""
    for directory, names in files.by_directory.items():
        prefix = f"{directory}/" if directory else ""
        if METADATA in names:
            yield from _check_directory(files, prefix, level)
        elif any(name.endswith(STORAGE) for name in names):
            yield prefix + METADATA, Checked((incomplete("missing: it is written last"),))


def read_metadata(content: bytes) -> Metadata:
    """Parse `.metadata`. Raises OpaqueError; executes nothing."""
    tree = stub_pickle.load(content)
    storage, state = _attribute(tree, "storage_data"), _attribute(tree, "state_dict_metadata")
    if not isinstance(storage, dict) or not isinstance(state, dict):
        raise stub_pickle.OpaqueError("no DCP metadata")
    pieces = tuple(_piece(index, info) for index, info in storage.items())
    tensors = {str(name): _sizes(entry) for name, entry in state.items() if _attribute(entry, "chunks") is not None}
    return Metadata(pieces, tensors, tuple(map(str, state)))


def _attribute(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, stub_pickle.Stub) else None


def _piece(index: Any, info: Any) -> Piece:
    values = [_attribute(info, name) for name in ("relative_path", "offset", "length")]
    if not isinstance(values[0], str) or not isinstance(values[1], int) or not isinstance(values[2], int):
        raise stub_pickle.OpaqueError("a piece without a place")
    return Piece(str(_attribute(index, "fqn")), *values)


def _sizes(entry: Any) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    chunks = tuple(_attribute(chunk, "sizes") for chunk in _attribute(entry, "chunks"))
    size = _attribute(entry, "size")
    if not all(isinstance(sizes, tuple) and all(isinstance(one, int) for one in sizes) for sizes in (size, *chunks)):
        raise stub_pickle.OpaqueError("a tensor without a size")
    return size, chunks


def _check_directory(files: Files, prefix: str, level: Level) -> Iterator[tuple[str, Checked]]:
    place = prefix + METADATA
    if not files.size(place):
        yield place, Checked((incomplete("empty file"),))
        return
    if level is Level.QUICK:
        return
    content = files.read_bytes(place)
    try:
        metadata = read_metadata(content or b"")
    except stub_pickle.OpaqueError as error:
        yield place, Checked((_opaque(content, error),))
        return
    by_file: dict[str, list[Piece]] = {}
    for piece in metadata.pieces:
        by_file.setdefault(piece.file, []).append(piece)
    yield place, Checked(tuple(_coverage(metadata)))
    for file, pieces in sorted(by_file.items()):
        yield _check_storage(files, prefix, file, pieces, level)


def _opaque(content: bytes | None, error: Exception) -> Finding:
    if content is None or len(content) > stub_pickle.MOST_PICKLE_BYTES:
        return note(f"{METADATA} is too large to follow")
    return corrupt(f"it cannot be read: {error}")


def _coverage(metadata: Metadata) -> Iterator[Finding]:
    found = dict.fromkeys((piece.tensor for piece in metadata.pieces), 0)
    for piece in metadata.pieces:
        found[piece.tensor] += 1
    for name in metadata.names:
        size, chunks = metadata.tensors.get(name, ((), ((),)))
        if sum(map(math.prod, chunks)) < math.prod(size) or found.get(name, 0) < len(chunks):
            yield incomplete(f"a piece of {name} is missing")
            return


def _check_storage(files: Files, prefix: str, file: str, pieces: list[Piece], level: Level) -> tuple[str, Checked]:
    if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts:
        return prefix + METADATA, Checked((corrupt(f"it names a file outside its directory: {file}"),))
    path = prefix + file
    if path not in files.entries:
        return path, Checked((incomplete("missing, and .metadata needs it (is the directory shared by all nodes?)"),))
    end = max(piece.offset + piece.length for piece in pieces)
    size = files.size(path)
    if size < end:
        return path, Checked((incomplete(f"truncated: {size} bytes where .metadata needs {end}"),))
    if size > end:
        return path, Checked((inconsistent(f"{size} bytes where .metadata needs {end}: they are of different saves"),))
    return path, _deep(files, path, pieces) if level is Level.DEEP else Checked()


def _deep(files: Files, path: str, pieces: list[Piece]) -> Checked:
    """Each piece that is a torch zip; other serializations of DCP have no checksum."""
    parts: list[Checked] = []
    try:
        with opened(files.location(path), path) as source:
            parts = [
                check_torch_zip(source, Level.DEEP, piece.offset, piece.length)
                for piece in sorted(pieces, key=lambda piece: piece.offset)
                if source.at(piece.offset, 2) == b"PK"
            ]
    except FileNotFoundError:
        return Checked((incomplete("it vanished during the check"),))
    except DamagedError as error:
        return Checked((error.finding,))
    return Checked(
        tuple(finding for part in parts for finding in part.findings),
        tuple(span for part in parts for span in part.spans),
    )

"""The manifest of a concurrent checkpoint: every file with its size and the digests of its chunks.

MANIFEST.json is written when all ranks' files are on the disk, then COMMITTED with the manifest's SHA-256, then the
directory gets its name. So a directory without COMMITTED was not finished, and one whose manifest has another SHA-256
is damaged. Files that the manifest does not list are no damage: somebody may add one later.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol, cast

from .crc32 import crc32
from .finding import Finding, corrupt, incomplete, inconsistent, note
from .formats.source import DamagedError, Digest, Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .files import Files

MANIFEST = "MANIFEST.json"
COMMITTED = "COMMITTED"
LATEST = "latest"
SCHEMA = 1
KIND = "datastates-checkpoint"
ALGORITHMS = {"xxh3_128": 32, "sha256": 64, "crc32": 8}  # name -> hex digits
MOST_CHUNK_BYTES = 64 << 20
HEX = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file: who wrote it, its size in bytes, and one digest per chunk, in order."""

    rank: int
    size: int
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What MANIFEST.json says."""

    step: int
    run: str
    attempt: str
    world_size: int
    algorithm: str
    chunk_bytes: int
    files: dict[str, ManifestFile]


def has_manifest(files: Files) -> bool:
    """Tell whether the concurrent engine wrote this checkpoint."""
    return MANIFEST in files.entries or COMMITTED in files.entries


def read_manifest(files: Files) -> Manifest | None:
    """Return the committed manifest; None if its schema is newer than ours. Raises DamagedError."""
    content, committed = files.read_bytes(MANIFEST), files.read_json(COMMITTED)
    if content is None:
        raise DamagedError(incomplete(f"{MANIFEST} is missing"))
    if committed is None:
        raise DamagedError(incomplete(f"not committed: {COMMITTED} is missing or broken"))
    if not isinstance(committed, dict) or committed.get("manifest_sha256") != hashlib.sha256(content).hexdigest():
        raise DamagedError(corrupt(f"{MANIFEST} is not the one that was committed"))
    try:
        return _parse(json.loads(content))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise DamagedError(corrupt(f"{MANIFEST} cannot be parsed: {error}")) from error


def _parse(value: dict[str, Any]) -> Manifest | None:
    if int(value["schema"]) > SCHEMA:
        return None
    files = {_safe(name): _file(entry) for name, entry in value["files"].items()}
    manifest = Manifest(
        step=int(value["step"]),
        run=str(value["run"]),
        attempt=str(value["attempt"]),
        world_size=int(value["world_size"]),
        algorithm=str(value["algorithm"]),
        chunk_bytes=int(value["chunk_bytes"]),
        files=files,
    )
    if not 0 < manifest.chunk_bytes <= MOST_CHUNK_BYTES:
        raise ValueError(f"chunk_bytes {manifest.chunk_bytes}")
    for name, file in files.items():
        if len(file.digests) != -(-file.size // manifest.chunk_bytes):
            raise ValueError(f"{name}: {len(file.digests)} digests for {file.size} bytes")
    return manifest


def _safe(name: str) -> str:
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise ValueError(f"it names a file outside its directory: {name}")
    return name


def _file(entry: dict[str, Any]) -> ManifestFile:
    digests = tuple(entry["digests"])
    if not all(isinstance(digest, str) and HEX.fullmatch(digest) for digest in digests) or int(entry["size"]) < 0:
        raise ValueError("a digest that is none")
    return ManifestFile(int(entry["rank"]), int(entry["size"]), digests)


def check_manifest(files: Files, manifest: Manifest) -> Iterator[tuple[str, Finding]]:
    """Compare names and sizes with the listing: (file, what is wrong with it)."""
    for name, expected in manifest.files.items():
        found = files.entries.get(name)
        if found is None:
            yield name, incomplete("missing, and the manifest lists it")
        elif found.size < expected.size:
            yield name, incomplete(f"truncated: {found.size} bytes where the manifest says {expected.size}")
        elif found.size > expected.size:
            yield name, inconsistent(f"{found.size} bytes where the manifest says {expected.size}")
    if hasher(manifest.algorithm) is None:
        yield "", note(f"digests not compared: {manifest.algorithm} is not available here (pip install xxhash)")


def digest_spans(manifest: Manifest, name: str) -> tuple[Span, ...]:
    """Return one span per chunk of a listed file; none where its digests cannot be computed here."""
    file = manifest.files.get(name)
    if file is None or hasher(manifest.algorithm) is None:
        return ()
    size = manifest.chunk_bytes
    return tuple(
        Span(index * size, min(size, file.size - index * size), "a chunk", digest=Digest(manifest.algorithm, digest))
        for index, digest in enumerate(file.digests)
    )


class Hasher(Protocol):
    """Takes bytes piece by piece."""

    def update(self, content: memoryview, /) -> None:
        """Add a piece."""

    def hexdigest(self) -> str:
        """Return lower-case hex digits."""


class _Crc32:
    """CRC-32 with the interface of a hash."""

    def __init__(self) -> None:
        self.value = 0

    def update(self, content: memoryview) -> None:
        self.value = crc32(content, self.value)

    def hexdigest(self) -> str:
        return f"{self.value:08x}"


def hasher(algorithm: str) -> Hasher | None:
    """Return a new hasher; None if the algorithm is not available here."""
    if algorithm == "crc32":
        return _Crc32()
    if algorithm == "sha256":
        return hashlib.sha256()
    if algorithm != "xxh3_128":
        return None
    try:
        from xxhash import xxh3_128  # noqa: PLC0415 - optional: a training's Python may not have it
    except ImportError:
        return None
    return cast("Hasher", xxh3_128())

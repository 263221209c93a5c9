"""What a rank wrote, and what a whole checkpoint consists of, as JSON. Read and verified by `_checkpoints.manifest`."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .durable import encode
from .errors import EngineError
from .hashing import ALGORITHM, CHUNK_BYTES, sha256

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .snapshot import Chunk

SCHEMA = 1
KIND = "datastates-checkpoint"


@dataclass(frozen=True)
class Save:
    """Which save this is; equal on all ranks."""

    step: int
    run: str
    attempt: str
    world_size: int


@dataclass(frozen=True)
class FileRecord:
    """One file of a checkpoint: bytes, the digest of each chunk, and its tensors where known."""

    size: int
    digests: tuple[str, ...]
    tensors: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RankRecord:
    """What one rank wrote, by path relative to the checkpoint. `error`: why it could not."""

    rank: int
    files: Mapping[str, FileRecord]
    error: str = ""
    algorithm: str = ALGORITHM


def encode_record(save: Save, record: RankRecord) -> bytes:
    """Return the content of `.rank-R.json`."""
    files = {
        name: {"size": file.size, "digests": file.digests, "tensors": file.tensors}
        for name, file in record.files.items()
    }
    return encode(
        {
            "schema": SCHEMA,
            "step": save.step,
            "attempt": save.attempt,
            "world_size": save.world_size,
            "rank": record.rank,
            "algorithm": record.algorithm,
            "error": record.error,
            "files": files,
        }
    )


def decode_record(save: Save, rank: int, content: bytes) -> RankRecord:
    """Return a rank's record. Raises EngineError if it is not this save's."""
    try:
        values = json.loads(content)
        told = (values["step"], values["attempt"], values["world_size"], values["rank"], values["schema"])
        files = {
            name: FileRecord(file["size"], tuple(file["digests"]), file["tensors"])
            for name, file in values["files"].items()
        }
        record = RankRecord(rank, files, values["error"], values["algorithm"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"the record of rank {rank} for step {save.step} cannot be read: {error!r}") from error
    if told != (save.step, save.attempt, save.world_size, rank, SCHEMA):
        raise EngineError(f"the record of rank {rank} belongs to another save: {told}, not {save}")
    return record


def digests_by_file(chunks: Sequence[Chunk]) -> dict[str, tuple[str, ...]]:
    """Return the digests of written chunks by their file's path, in order."""
    found: dict[str, list[tuple[int, str]]] = {}
    for chunk in chunks:
        found.setdefault(str(chunk.image.path), []).append((chunk.index, chunk.digest))
    return {path: tuple(digest for _, digest in sorted(pairs)) for path, pairs in found.items()}


def encode_manifest(save: Save, records: Sequence[RankRecord], owner: Mapping[str, Any]) -> bytes:
    """Return the content of MANIFEST.json. Raises EngineError if the ranks contradict each other."""
    algorithms = {record.algorithm for record in records}
    if len(algorithms) != 1:
        raise EngineError(
            f"the ranks hash differently: {', '.join(sorted(algorithms))}", "Install xxhash on all nodes, or on none"
        )
    files: dict[str, dict[str, Any]] = {}
    for record in records:
        for name, file in record.files.items():
            entry = {"rank": record.rank, "size": file.size, "digests": list(file.digests)}
            if file.tensors:
                entry["tensors"] = file.tensors
            before = files.setdefault(name, entry)
            if (before["size"], before["digests"]) != (entry["size"], entry["digests"]):
                raise EngineError(f"ranks {before['rank']} and {record.rank} both wrote {name}, and not the same")
    return encode(
        {
            "schema": SCHEMA,
            "kind": KIND,
            "step": save.step,
            "run": save.run,
            "attempt": save.attempt,
            "owner": owner,
            "world_size": save.world_size,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "algorithm": algorithms.pop(),
            "chunk_bytes": CHUNK_BYTES,
            "files": files,
        }
    )


def encode_marker(save: Save, manifest: bytes) -> bytes:
    """Return the content of COMMITTED."""
    return encode(
        {
            "schema": SCHEMA,
            "step": save.step,
            "run": save.run,
            "attempt": save.attempt,
            "world_size": save.world_size,
            "manifest_sha256": sha256(manifest),
        }
    )


def run_of(marker: bytes) -> str:
    """Return the run that a marker names; empty if it cannot be read."""
    try:
        return str(json.loads(marker)["run"])
    except (ValueError, KeyError, TypeError):
        return ""

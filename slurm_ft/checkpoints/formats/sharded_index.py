"""`*.index.json` of a sharded model: each tensor that it names has to be in the shard that it names.

Shards lie beside the index. A name that leads elsewhere is refused: an index is untrusted input.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ..finding import Finding, Level, corrupt, incomplete, inconsistent
from .safetensors import read_header
from .source import Checked, DamagedError, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import Files

ENDING = ".index.json"


def check_sharded_indexes(files: Files, level: Level) -> Iterator[tuple[str, Checked]]:
    """Judge every index of the checkpoint."""
    for name in files.names:
        if name.endswith(ENDING):
            yield name, Checked(tuple(_check(files, name, level)))


def _check(files: Files, name: str, level: Level) -> Iterator[Finding]:
    index = files.read_json(name)
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        yield corrupt("an index without a weight_map")
        return
    by_shard: dict[str, list[str]] = {}
    for tensor, shard in weight_map.items():
        by_shard.setdefault(str(shard), []).append(tensor)
    for shard in sorted(by_shard):
        finding = _check_shard(files, str(PurePosixPath(name).parent), shard, by_shard[shard], level)
        if finding is not None:
            yield finding


def _check_shard(files: Files, directory: str, shard: str, tensors: list[str], level: Level) -> Finding | None:
    if PurePosixPath(shard).name != shard or shard in {"..", ""}:
        return corrupt(f"it names a file outside its directory: {shard}")
    path = shard if directory == "." else f"{directory}/{shard}"
    if path not in files.entries:
        return incomplete(f"shard {shard} is missing")
    if level is Level.QUICK or not shard.endswith(".safetensors"):
        return None
    missing = set(tensors) - _names(files, path, tensors)
    return inconsistent(f"shard {shard} has no tensor {min(missing)}") if missing else None


def _names(files: Files, path: str, tensors: Any) -> set[str]:
    """The shard's tensors; what is damaged or too large is the shard's own finding."""
    try:
        with opened(files.location(path), path) as source:
            header = read_header(source)
    except (DamagedError, FileNotFoundError):
        return set(tensors)
    return set(tensors) if header is None else {tensor.name for tensor in header.tensors}

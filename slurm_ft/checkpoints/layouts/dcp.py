"""torch.distributed.checkpoint in numbered directories, as scripts write it. `.metadata` is written last."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..formats.dcp import METADATA, read_metadata
from ..formats.stub_pickle import OpaqueError
from ..layout import Layout, Part, State
from ..states import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import Files

RANK = re.compile(r"__(\d+)_\d+\.distcp")


def world_size(files: Files) -> int | None:
    """Return how many ranks wrote storage files; a checkpoint may be loaded by any other number."""
    ranks = {int(match[1]) for name in files.names if (match := RANK.fullmatch(name))}
    return max(ranks) + 1 if ranks else None


def states(files: Files) -> Iterator[tuple[State, str]]:
    """Return the states whose keys begin the names in `.metadata`."""
    try:
        metadata = read_metadata(files.read_bytes(METADATA) or b"")
    except OpaqueError:
        return
    first = {part for name in metadata.names for part in name.split(".")[:2]}
    yield from ((state, METADATA) for state, keys in KEYS if first & set(keys))


DCP = Layout(
    name="dcp",
    title="torch DCP",
    entry=re.compile(r"(?:(?:step|iter|epoch|checkpoint|ckpt|global_step)[-_]?)?(?P<step>[0-9]+)"),
    places=(".", "checkpoint", "checkpoints"),
    parts=(Part(state=State.MODEL, files=("*.distcp",)),),
    marker=METADATA,
    recognise=lambda files: any("/" not in name for name in files.matching("*.distcp")) or files.has(METADATA),
    world_size=world_size,
    states=states,
)

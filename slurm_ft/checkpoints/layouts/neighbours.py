"""The other checkpoints beside one: what they have is what it should have too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UnreadableCheckpointError

if TYPE_CHECKING:
    import re
    from collections.abc import Collection

MOST = 3  # a run saves the same things each time: a few neighbours tell


def neighbours(path: Path, entry: re.Pattern[str]) -> tuple[Path, ...]:
    """Return a few other entries of the same kind, those with the highest names first.

    Raises UnreadableCheckpointError.
    """
    found = [name for name in _names(path.parent) if name != path.name and entry.fullmatch(name)]
    ordered = sorted(found, key=lambda name: (len(name), name), reverse=True)
    return tuple(path.parent / name for name in ordered[:MOST])


def parts_beside(path: Path, entry: re.Pattern[str]) -> Collection[str]:
    """Return the names of the files and directories that lie directly in a neighbour."""
    return {name for one in neighbours(path, entry) for name in _names(one)}


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - names are all we need
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnreadableCheckpointError(directory, error) from error

"""Files that survive a power cut: written beside, fsynced, renamed, and the directory fsynced."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def encode(value: Mapping[str, object]) -> bytes:
    """Return a JSON object as this package writes it."""
    return (json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n").encode()


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file so that it is whole or absent, whatever happens. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the directory's entries durable. Raises OSError."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make a file that somebody else wrote durable. Raises OSError."""
    _sync(path, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

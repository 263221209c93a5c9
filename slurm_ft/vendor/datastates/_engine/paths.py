"""The names below a checkpoint root, and what is committed there."""

from __future__ import annotations

import os
import re
from pathlib import Path

MANIFEST = "MANIFEST.json"
MARKER = "COMMITTED"
OWNER = "owner.json"
LATEST = "latest"
TEMPORARY_PREFIX = ".tmp-"
TRASH_PREFIX = ".trash-"

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def checkpoint_name(step: int) -> str:
    """The directory of a committed checkpoint."""
    return f"checkpoint-{step}"


def temporary_name(step: int, attempt: str) -> str:
    """The directory of a save in flight."""
    return f"{TEMPORARY_PREFIX}{step}-{attempt}"


def record_name(rank: int) -> str:
    """The file in which one rank says what it wrote."""
    return f".rank-{rank}.json"


def step_of(name: str) -> int | None:
    """Return the step in a checkpoint directory's name; None for any other name."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


def committed(root: Path) -> list[tuple[int, Path]]:
    """Return the committed checkpoints, newest first, by their marker alone. A root that does not exist has none."""
    try:
        names = os.listdir(root)  # noqa: PTH208 - names are all we need
    except FileNotFoundError:
        return []
    numbered = ((step_of(name), root / name) for name in names)
    return sorted(((s, path) for s, path in numbered if s is not None and (path / MARKER).is_file()), reverse=True)

"""The journal: every decision and what came of it, one JSON object a line, appended for audit and crash recovery.

Lives in the state directory as `journal.jsonl`, readable by its owner and group only: it names users' jobs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
FILE_NAME = "journal.jsonl"
TAIL = 4 * 1024 * 1024  # bytes that a hook reads back at most


def append(state_dir: Path, entry: Mapping[str, Any]) -> None:
    """Append one entry with a single write, so that concurrent hooks never mix. Raises OSError.

    Behind a line that a crash has torn it starts a new one.
    """
    state_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
    line = json.dumps({"v": SCHEMA_VERSION, **entry}, separators=(",", ":"), ensure_ascii=True) + "\n"
    descriptor = os.open(state_dir / FILE_NAME, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640)
    try:
        _give_to_owner_of(state_dir, descriptor)
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, b"\n" * torn + line.encode("ascii"))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _give_to_owner_of(state_dir: Path, descriptor: int) -> None:
    """A node's root may write first where the controller's SlurmUser writes later (both on one machine)."""
    owner, status = state_dir.stat(), os.fstat(descriptor)
    if os.geteuid() == 0 and status.st_uid == 0 and owner.st_uid != 0:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def entries(state_dir: Path, tail: int = TAIL) -> list[dict[str, Any]]:
    """The readable entries in the last `tail` bytes, oldest first; a torn line is passed over. Raises OSError."""
    path = state_dir / FILE_NAME
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - tail, 0))
        text = file.read(tail).decode("utf-8", "replace")
    parsed = (_parse(line) for line in text.splitlines())
    return [entry for entry in parsed if entry is not None]


def _parse(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None

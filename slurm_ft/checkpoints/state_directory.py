"""Where this package keeps its own notes about an output directory: beside it, never in it.

Frameworks count, sort and delete what lies in an output directory, some by modification time, so nothing is added to
it. `.ft-state/NAME/` holds notes, `.ft-quarantine/NAME/` what was moved aside; both on the output directory's file
system as a rule, because they lie in its parent.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

MOST_BYTES = 16 << 20


def state_directory(output_dir: Path) -> Path:
    """The directory for notes about an output directory; it need not exist."""
    return output_dir.parent / ".ft-state" / output_dir.name


def read_note(path: Path) -> Any:
    """Return a note's JSON value; None if there is none that can be read."""
    try:
        with path.open("rb") as file:
            return json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def write_note(path: Path, value: Any) -> bool:
    """Write a note as a whole or not at all; False if that cannot be done here."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(value, indent=1) + "\n")
    except OSError:
        return False
    return True


def write_atomically(path: Path, text: str) -> None:
    """Replace a file so that a reader, or a kill at any moment, finds the old text or the new one. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Bring a rename to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

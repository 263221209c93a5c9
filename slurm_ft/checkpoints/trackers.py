"""Set a framework's tracker file to the chosen checkpoint.

Trackers lie in both directions: some are written before the other ranks have finished, some in place, so that a kill
leaves them empty; and a missing one makes several frameworks start from scratch without an error.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .errors import CheckpointError
from .printable import printable
from .state_directory import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from .layout import Layout, ResumePoint

MOST_BYTES = 4096


def repair_trackers(layout: Layout, point: ResumePoint) -> tuple[Path, ...]:
    """Rewrite each tracker that says something else, and return those. Raises CheckpointError if one cannot be."""
    changed = []
    for tracker in layout.trackers:
        path = (point.path if tracker.inside else point.path.parent) / tracker.name
        wanted = tracker.text(point)
        try:
            if _text(path) != wanted:
                _write(path, wanted, keep_time=tracker.inside)
                changed.append(path)
        except OSError as error:
            raise CheckpointError(
                f"cannot set {printable(str(path))} to {wanted!r}: {error.strerror}",
                "The framework would start elsewhere: make it writable for the job's user",
            ) from error
    return tuple(changed)


def _text(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None


def _write(path: Path, text: str, *, keep_time: bool) -> None:
    """Write as a whole. Within a checkpoint its directory keeps its time: rotations sort by it."""
    before = path.parent.stat()
    write_atomically(path, text)
    if keep_time:
        os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))

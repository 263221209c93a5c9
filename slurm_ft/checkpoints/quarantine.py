"""Move a broken checkpoint out of a framework's sight, so that it can be moved back.

The new place lies outside the output directory: frameworks count and delete by name patterns what lies inside
(`checkpoint-6.corrupt` counts for the Trainer's rotation). A rename on the same file system keeps every byte and every
modification time of the checkpoint. Its record is written first, so that a kill in between loses nothing.
"""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import CheckpointError
from .printable import printable
from .state_directory import read_note, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .choose import Rejected

SCHEMA = 1
QUARANTINE = ".ft-quarantine"
RECORD = "record.json"


@dataclass(frozen=True, slots=True)
class Moved:
    """A checkpoint that was renamed, or that can be."""

    origin: Path
    place: Path
    reason: str = ""


def quarantine(output_dir: Path, rejected: Rejected, job_id: str) -> Moved | None:
    """Rename one broken checkpoint out of the output directory; None if it is gone: another process was faster.

    Raises CheckpointError if that cannot be done.
    """
    origin = rejected.candidate.path
    for base in (output_dir.parent / QUARANTINE / output_dir.name, output_dir / QUARANTINE):
        try:
            return _move(origin, base, rejected, job_id)
        except OSError as error:
            if not os.path.lexists(origin):
                return None
            if error.errno not in (errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS):
                raise _failed(origin, error) from error
            failure = error
    raise _failed(origin, failure)


def _failed(origin: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"cannot move {printable(str(origin))} aside: {error.strerror}",
        "The framework would resume from it, and it is broken: move it away by hand",
    )


def _move(origin: Path, base: Path, rejected: Rejected, job_id: str) -> Moved:
    place = _new_directory(base, job_id)
    record = {
        "schema": SCHEMA,
        "from": str(origin),
        "name": origin.name,
        "step": rejected.candidate.step,
        "layout": rejected.candidate.layout.name,
        "verdict": rejected.finding.verdict.value,
        "reason": rejected.finding.reason,
        "job": job_id,
        "time": int(time.time()),
    }
    try:
        write_atomically(place / RECORD, json.dumps(record, indent=1) + "\n")
        origin.rename(place / origin.name)
    except OSError:
        (place / RECORD).unlink(missing_ok=True)
        place.rmdir()
        raise
    return Moved(origin, place / origin.name, rejected.finding.reason)


def _new_directory(base: Path, job_id: str) -> Path:
    base.mkdir(parents=True, exist_ok=True)
    for number in range(1, 100_000):
        place = base / f"{job_id}-{number}"
        try:
            place.mkdir()
        except FileExistsError:
            continue
        return place
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(base))


def quarantined(output_dir: Path) -> Iterator[Moved]:
    """Yield what was moved out of an output directory and is still aside."""
    directory = Path(os.path.abspath(output_dir))  # noqa: PTH100
    for base in (directory.parent / QUARANTINE / directory.name, directory / QUARANTINE):
        for record in sorted(base.glob(f"*/{RECORD}")):
            content = read_note(record)
            if not isinstance(content, dict):
                continue
            place = record.parent / str(content.get("name", ""))
            origin = Path(str(content.get("from", "")))
            if place.parent == record.parent and os.path.lexists(place) and origin.is_relative_to(directory):
                yield Moved(origin, place, str(content.get("reason", "")))


def restore(moved: Moved) -> None:
    """Rename a checkpoint back to where it was. Raises CheckpointError if something else is there by now."""
    if os.path.lexists(moved.origin):
        raise CheckpointError(
            f"{printable(str(moved.origin))} exists by now, so {printable(str(moved.place))} stays where it is",
            "Move one of the two by hand",
        )
    try:
        moved.origin.parent.mkdir(parents=True, exist_ok=True)
        moved.place.rename(moved.origin)
        (moved.place.parent / RECORD).unlink(missing_ok=True)
        moved.place.parent.rmdir()
    except OSError as error:
        raise CheckpointError(f"cannot move {printable(str(moved.place))} back: {error.strerror}") from error

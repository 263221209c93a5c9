"""One committed checkpoint, read again to the last byte, and the record of it."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

from .._checkpoints import Level, Request, judge
from .._checkpoints.find import find_one
from .._checkpoints.manifest import COMMITTED, MANIFEST
from .._checkpoints.progress import Silent
from .._checkpoints.validation import VALIDATION, Validation, encode_validation, read_validation
from .._engine.durable import write_whole
from .over import Over

if TYPE_CHECKING:
    from pathlib import Path


class EndedError(Exception):
    """The training is over; what is left to read is not read any more."""


class _UntilOver(Silent):
    """Ends the reading between two chunks."""

    def __init__(self, over: Over) -> None:
        self._over = over

    def advance(self, count: int) -> None:  # noqa: ARG002 - only the moment matters
        """Raise EndedError once it is over."""
        if self._over.is_set():
            raise EndedError


def validate(path: Path, over: Over) -> Validation | None:
    """Read a checkpoint and write VALIDATION.json into it; None if the training ended before that.

    Raises FileNotFoundError if it is not there (any more), UnreadableCheckpointError or OSError if the storage does not
    answer; then nothing is written.
    """
    started = time.monotonic()
    manifest = hashlib.sha256((path / MANIFEST).read_bytes()).hexdigest()
    (path / COMMITTED).stat()
    candidate = find_one(path)
    if candidate is None:
        raise FileNotFoundError(path)
    (path / VALIDATION).unlink(missing_ok=True)  # an earlier record must not speak for itself
    try:
        judgement = judge(candidate, Request(Level.DEEP, progress=_UntilOver(over)))
    except EndedError:
        return None
    if not (path / COMMITTED).exists():  # retention took it meanwhile: what was missing is no damage
        raise FileNotFoundError(path)
    size = judgement.files.total_bytes if judgement.files else 0
    seconds = time.monotonic() - started
    write_whole(path / VALIDATION, encode_validation(judgement.finding, manifest, size, seconds))
    return read_validation(path)

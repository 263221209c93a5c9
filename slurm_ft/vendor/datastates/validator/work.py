"""The checkpoints to read, newest first: one at a time, and never more waiting than are worth it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from .._checkpoints.counters import CounterFile, Counters
from .._checkpoints.errors import CheckpointError
from .over import Over
from .validate import validate

if TYPE_CHECKING:
    from pathlib import Path

    from .._checkpoints.validation import Validation

log = logging.getLogger("datastates.validator")

MOST_WAITING = 16  # beyond them the oldest are left to the check before a resume
LOOK_AGAIN = 0.5  # seconds


class Work:
    """What was asked for, and the loop that does it."""

    def __init__(self) -> None:
        self._waiting: deque[Path] = deque(maxlen=MOST_WAITING)
        self._news = threading.Condition()
        self._counters, self._counter_file = Counters(), CounterFile("validator")

    def add(self, path: Path) -> None:
        """Have a checkpoint validated. One that waits already is not read twice."""
        with self._news:
            if path in self._waiting:
                self._waiting.remove(path)
            self._waiting.append(path)
            self._news.notify()

    def run(self, over: Over) -> None:
        """Validate until `over`."""
        while not over.is_set():
            path = self._next()
            if path is not None:
                self._count(validate_and_tell(path, over))

    def _count(self, validation: Validation | None) -> None:
        if validation is not None:
            more = Counters(validated=int(not validation.failed), invalid=int(validation.failed))
            self._counters = self._counters.plus(more)
            self._counter_file.write(self._counters)

    def _next(self) -> Path | None:
        with self._news:
            if not self._waiting:
                self._news.wait(LOOK_AGAIN)
            return self._waiting.pop() if self._waiting else None


def validate_and_tell(path: Path, over: Over) -> Validation | None:
    """Validate one checkpoint and log what was found. Nothing is raised: the next one must have its turn."""
    started = time.monotonic()
    try:
        validation = validate(path, over)
    except FileNotFoundError:
        log.info("[Concurrent Checkpoint] %s is gone: not validated", path)
    except (CheckpointError, OSError) as error:
        log.warning("[Concurrent Checkpoint] %s could not be validated: %s", path, error)
    except Exception:
        log.exception("[Concurrent Checkpoint] %s could not be validated", path)
    else:
        if validation is not None:
            _tell(path, validation, time.monotonic() - started)
        return validation
    return None


def _tell(path: Path, validation: Validation, seconds: float) -> None:
    if validation.failed:
        log.error(
            "[Concurrent Checkpoint] %s FAILED validation and will not be resumed from: %s", path, validation.reason
        )
    elif validation.validated:
        log.info("[Concurrent Checkpoint] %s validated in %.1f s", path, seconds)
    else:
        log.warning("[Concurrent Checkpoint] %s is sound, but no point to resume from: %s", path, validation.reason)

"""What the engine has done so far, for logs and for those who ask."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """What became of a call to `Engine.save`."""

    STARTED = "started"
    BUSY = "busy"  # the last save is still being written
    DUPLICATE = "duplicate"  # this step is saved, or being saved
    DISABLED = "disabled"  # too many failures in a row
    FAILED = "failed"  # the saver or the storage raised; it is logged


@dataclass(frozen=True, slots=True)
class Status:
    """Counters and the last save's times in seconds."""

    started: int = 0
    committed: int = 0
    skipped: int = 0
    failed: int = 0
    failures_in_a_row: int = 0
    disabled: bool = False
    in_flight_step: int | None = None
    last_committed_step: int | None = None
    last_error: str = ""
    call_seconds: float = 0.0
    fence_seconds: float = 0.0
    starved_seconds: float = 0.0
    durable_seconds: float = 0.0
    bytes: int = 0
    blocking_bytes: int = 0  # of the last save, written by the training thread itself
    pool_bytes: int = 0  # in use at once, at most
    lazy: bool = False

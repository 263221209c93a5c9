"""Follows the kernel log as it grows: what the GPU driver says, faults of the node, and where attempts begin.

Opens /dev/kmsg as one more reader, at its oldest record; a reader of the rest waits for poll(2) to say that there is
more. What it has returned already, after a restart, the caller tells by the record's number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurm_ft.model import Event
from slurm_ft.sensors.host_lines import HINTS
from slurm_ft.sensors.kernel_lines import MAX_LINE, event_of, parse_record

START = "slurm_ft: start job="  # how the node Prolog's marker begins
_WORTH_DECODING = (b";NVRM: ", b";nvidia-nvswitch", b";" + START.encode(), *HINTS)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One record of interest: an event of the driver or of the node, or the marker of an attempt's start.

    `sequence` counts records since boot.
    """

    sequence: int
    event: Event | None = None
    marker: str = ""


class KernelFollower:
    """A reader of the kernel log that never waits by itself: poll `fileno()`."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)

    def fileno(self) -> int:
        """What to poll for input."""
        return self._descriptor

    def close(self) -> None:
        """Give the log back."""
        os.close(self._descriptor)

    def read(self) -> Iterator[Sighting]:
        """What has come since the last call. Raises OSError when the log can no longer be read."""
        for raw in self._records():
            # All others pass undecoded: the log may be a busy one.
            if any(start in raw for start in _WORTH_DECODING):
                sighting = _sighting(raw)
                if sighting is not None:
                    yield sighting

    def _records(self) -> Iterator[bytes]:
        while True:
            try:
                raw = os.read(self._descriptor, MAX_LINE)
            except BlockingIOError:
                return
            except BrokenPipeError:  # overwritten before we came to it; the next read goes on at the oldest record
                continue
            if not raw:
                return
            yield raw


def _sighting(raw: bytes) -> Sighting | None:
    record = parse_record(raw.partition(b"\n")[0].decode("utf-8", "replace"))
    if record is None:
        return None
    # The kernel's own records have facility 0 and may quote a text that a user chose; ours never has.
    if record.message.startswith(START):
        return Sighting(record.sequence, marker=record.message) if record.facility != 0 else None
    event = event_of(record, record.message)
    return None if event is None else Sighting(record.sequence, event)

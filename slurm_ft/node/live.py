"""The watcher's sources besides the kernel log: opened, polled, given up when they are silent, opened again later."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from logging import Logger
from typing import Protocol

from slurm_ft.config import Config
from slurm_ft.errors import SlurmFtError
from slurm_ft.model import Event
from slurm_ft.sensors.nvml_watch import NvmlWatch

AGAIN_FIRST = 60.0  # seconds until a source that has ended is opened again; doubled each time
AGAIN_MAX = 3600.0


class LiveSource(Protocol):
    """What tells of faults while they happen and is not the kernel log. It runs in a process of its own."""

    def fileno(self) -> int:
        """What to poll for input."""

    @property
    def deadline(self) -> float:
        """When (monotonic) it is to be given up unless it says something."""

    def read(self) -> Sequence[Event]:
        """What has come, without waiting. Raises OSError when nothing will come any more."""

    def close(self) -> None:
        """End it, without waiting."""

    def gone(self) -> bool:
        """Whether it has ended."""


# Each opens one source, answers None if the site has switched it off, and raises OSError or SlurmFtError.
LIVE_SOURCES: tuple[Callable[[Config], LiveSource | None], ...] = (
    lambda config: NvmlWatch() if config.nvml_events else None,
)


@dataclass(slots=True)
class _Slot:
    opener: Callable[[Config], LiveSource | None]
    source: LiveSource | None = None
    open_at: float | None = 0.0  # monotonic; None: never again
    pause: float = AGAIN_FIRST
    ended: LiveSource | None = None


class LiveSources:
    """All of them. The kernel log alone is enough, so whatever goes wrong here is logged and never raised."""

    def __init__(
        self,
        config: Config,
        log: Logger,
        poll: select.poll,
        openers: Sequence[Callable[[Config], LiveSource | None]] = LIVE_SOURCES,
    ) -> None:
        self._config, self._log, self._poll = config, log, poll
        self._slots = [_Slot(opener) for opener in openers]

    def tend(self) -> float | None:
        """Open what is due, give up what is silent; returns the seconds until that is due again, None for never."""
        now = time.monotonic()
        for slot in self._slots:
            if slot.source is not None and slot.source.deadline <= now:
                self._end(slot, "has said nothing for too long")
            if slot.source is None and slot.open_at is not None and slot.open_at <= now:
                self._open(slot)
        times = [slot.source.deadline if slot.source else slot.open_at for slot in self._slots]
        due = min((at for at in times if at is not None), default=None)
        return None if due is None else max(due - time.monotonic(), 0.0)

    def news(self, descriptor: int) -> Iterator[Event]:
        """What the source behind the descriptor has to say; nothing for a descriptor that is none of theirs."""
        for slot in self._slots:
            if slot.source is not None and slot.source.fileno() == descriptor:
                try:
                    events = slot.source.read()
                except OSError as error:
                    self._end(slot, str(error))
                    return
                slot.pause = AGAIN_FIRST
                yield from events

    def close(self) -> None:
        """End all of them."""
        for slot in self._slots:
            if slot.source is not None:
                slot.source.close()

    def _open(self, slot: _Slot) -> None:
        if slot.ended is not None and not slot.ended.gone():
            self._later(slot)
            return
        slot.ended = None
        try:
            slot.source = slot.opener(self._config)
        except SlurmFtError as error:  # the site's to mend; a restart of the watcher looks again
            self._log.warning("not watched: %s", error)
            slot.open_at = None
        except OSError as error:
            self._log.warning("not watched: %s", error)
            self._later(slot)
        else:
            slot.open_at = None
            if slot.source is not None:
                self._poll.register(slot.source, select.POLLIN)

    def _end(self, slot: _Slot, why: str) -> None:
        if slot.source is None:
            return
        self._poll.unregister(slot.source)
        slot.source.close()
        slot.ended, slot.source = slot.source, None
        self._log.error("%s: asked again in %g s", why, slot.pause)
        self._later(slot)

    def _later(self, slot: _Slot) -> None:
        slot.open_at = time.monotonic() + slot.pause
        slot.pause = min(slot.pause * 2, AGAIN_MAX)

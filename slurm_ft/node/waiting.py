"""Attempts with a fatal fault that have not ended yet, and when to look at each of them again. Pure: no clock."""

from __future__ import annotations

from dataclasses import dataclass, field

RETRY_FIRST = 0.5  # seconds until Slurm is asked again after it did not answer; doubled each time
RETRY_MAX = 30.0


@dataclass(slots=True)
class _Entry:
    due: float
    pause: float = RETRY_FIRST


@dataclass(slots=True)
class Waiting:
    """Times are those of one monotonic clock, in seconds. An attempt is named `job.restart`."""

    _entries: dict[str, _Entry] = field(default_factory=dict)
    _settled: set[str] = field(default_factory=set)

    def add(self, attempt: str, due: float) -> bool:
        """Look at the attempt at `due`. False if it waits already, or was settled: its first fault counts."""
        if attempt in self._entries or attempt in self._settled:
            return False
        self._entries[attempt] = _Entry(due)
        return True

    def due(self, now: float) -> tuple[str, ...]:
        """The attempts to look at now, the longest due first."""
        ready = [name for name, entry in self._entries.items() if entry.due <= now]
        return tuple(sorted(ready, key=lambda name: self._entries[name].due))

    def next_due(self) -> float | None:
        """When the next look is due, None if nothing waits: then no timer is needed."""
        return min((entry.due for entry in self._entries.values()), default=None)

    def retry(self, attempt: str, now: float) -> float:
        """Look again after a pause that grows each time; returns the pause."""
        entry = self._entries[attempt]
        pause = entry.pause
        entry.due, entry.pause = now + pause, min(pause * 2, RETRY_MAX)
        return pause

    def look_again(self, attempt: str, due: float) -> None:
        """Look again then; by now it should have ended."""
        self._entries[attempt] = _Entry(due)

    def settle(self, attempt: str) -> None:
        """Nothing more is to be done about the attempt, whatever its GPUs report."""
        self._entries.pop(attempt, None)
        self._settled.add(attempt)

    def drop(self, attempt: str) -> None:
        """Its faults so far call for nothing; the next one counts anew."""
        self._entries.pop(attempt, None)

    def keep(self, running: frozenset[str]) -> None:
        """Forget all attempts that have ended."""
        self._settled &= running
        for name in self._entries.keys() - running:
            del self._entries[name]

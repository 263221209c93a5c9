"""When to save: every so many steps, after so much time, or as often as a bounded overhead allows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .settings import AUTO

if TYPE_CHECKING:
    from .ranks import Ranks
    from .settings import Settings

# With `auto`, the first save comes after this many seconds: it is the measurement that the interval follows from.
FIRST_AUTO = 30.0


class Cadence:
    """Whether a save is due. Rank 0's clock decides for all."""

    def __init__(self, settings: Settings, ranks: Ranks) -> None:
        self._settings = settings
        self._ranks = ranks
        self._last = time.monotonic()

    def saved(self) -> None:
        """A save has begun."""
        self._last = time.monotonic()

    def due(self, step: int, default_steps: int | None, cost: tuple[float | None, float | None]) -> bool:
        """Whether to save after this step. Collective if time decides.

        `default_steps` serves where the settings name none; `cost`: seconds that the last saves added to the training,
        and until they were durable.
        """
        every = self._settings.save_steps
        if every is None and self._settings.save_seconds is None:
            every = default_steps
        if isinstance(every, int) and step % every == 0:
            return True
        seconds = [] if self._settings.save_seconds is None else [self._settings.save_seconds]
        if every == AUTO:
            seconds.append(self._affordable(*cost))
        if not seconds:
            return False
        waited = time.monotonic() - self._last
        return self._ranks.minimum(int(self._ranks.rank != 0 or waited >= min(seconds))) == 1

    def _affordable(self, added: float | None, durable: float | None) -> float:
        """Return the shortest interval within the bound: cost / share (CheckFreq, FAST'21), never below the disk."""
        if added is None or durable is None:
            return FIRST_AUTO
        return max(added / (self._settings.max_overhead / 100), durable)

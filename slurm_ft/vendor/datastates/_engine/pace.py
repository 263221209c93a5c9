"""What saving costs the training, measured; and from that, how to copy and how often to save.

The optimizer's pre-step hook gives the time of each step. What a save added is the time of the steps from its call to
its commit, less the same number of undisturbed steps. The call alone says little: background work slows the steps too.
"""

from __future__ import annotations

from collections import deque
from statistics import median

# Undisturbed steps to take the median of, and saves to try in each way before one is preferred.
BASELINE_STEPS = 20
TRIES = 3


class Pace:
    """Times of steps with and without a save under way, in seconds by the monotonic clock."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._clean: deque[float] = deque(maxlen=BASELINE_STEPS)
        self._disturbed: list[float] | None = None
        self._lazy = True
        self._added: dict[bool, deque[float]] = {True: deque(maxlen=5), False: deque(maxlen=5)}

    def begin(self, *, lazy: bool) -> None:
        """A save begins, between two steps."""
        self._disturbed, self._lazy = [], lazy

    def step(self, now: float, *, saving: bool) -> None:
        """A step is about to be taken; `saving`: the save of `begin` is still under way."""
        if self._last is not None:
            self._note(now - self._last, saving=saving)
        self._last = now

    def _note(self, interval: float, *, saving: bool) -> None:
        if self._disturbed is None:
            self._clean.append(interval)
            return
        self._disturbed.append(interval)
        if saving:
            return
        if self._clean:
            added = sum(self._disturbed) - len(self._disturbed) * median(self._clean)
            self._added[self._lazy].append(max(added, 0.0))
        self._disturbed = None

    @property
    def added(self) -> float | None:
        """Seconds that a save costs the training, by the way that is preferred; None before the first."""
        times = self._added[self.prefer_lazy()] or self._added[self._lazy]
        return median(times) if times else None

    def prefer_lazy(self) -> bool:
        """Whether copying late costs less than copying at once; both are tried first."""
        lazy, eager = self._added[True], self._added[False]
        if len(lazy) < TRIES or len(eager) < TRIES:
            return len(lazy) <= len(eager)
        return median(lazy) <= median(eager)

"""Whether the training is over."""

from __future__ import annotations


class Over:
    """A flag that a signal handler may set. `threading.Event` would not do: a second signal that comes while the first
    one's handler sets it waits for a lock that its own thread holds, for ever."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """From now on it is over."""
        self._set = True

    def is_set(self) -> bool:
        """Whether it is."""
        return self._set

"""A last checkpoint when the job is told to end: SIGTERM (preemption, scancel, time limit), or SIGUSR1 as early notice.

The handlers only note the signal. At the next step boundary a rank that got one announces, in the process group's
store, the step at which all ranks save; there is no collective in a handler, and none per step either. The order is
certain because a rank can only finish step N+1 after every rank took part in its gradients' reduction: what is
announced after step N is seen by all of them after step N+1.

After SIGTERM's save the process ends as it would have without us; after SIGUSR1's the training goes on.
"""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from types import FrameType

    from .._engine.ranks import Ranks

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


@dataclass(frozen=True, slots=True)
class Notice:
    """A signal that arrived. `at` is in seconds of time.monotonic()."""

    signal: signal.Signals
    at: float


class Board(Protocol):
    """Where a rank tells the others at which step to save once more."""

    def announce(self, step: int) -> None:
        """Ask all ranks to save after this step; the first to ask decides."""

    def announced(self) -> int | None:
        """Return the step that was asked for, if any."""

    def erase(self) -> None:
        """Forget the announcement. Every rank calls it at the announced step."""


class OwnBoard:
    """The board of a process that trains alone."""

    lead = 0  # steps between the announcement and the save

    def __init__(self) -> None:
        self._step: int | None = None

    def announce(self, step: int) -> None:
        """See Board."""
        self._step = step

    def announced(self) -> int | None:
        """See Board."""
        return self._step

    def erase(self) -> None:
        """See Board."""
        self._step = None


class StoreBoard:
    """The board of a process group, in its store. One look per step costs a message to rank 0's host (0.1 ms)."""

    lead = 1

    def __init__(self, store: Any) -> None:
        self._store, self._turn = store, 0

    @property
    def _key(self) -> str:
        return f"datastates/last_save/{self._turn}"

    def announce(self, step: int) -> None:
        """See Board."""
        self._store.compare_set(self._key, "", str(step))

    def announced(self) -> int | None:
        """See Board."""
        return int(self._store.get(self._key)) if self._store.check([self._key]) else None

    def erase(self) -> None:
        """See Board."""
        self._turn += 1


def board_of(ranks: Ranks) -> OwnBoard | StoreBoard:
    """Return the board of this process group."""
    if ranks.world_size == 1:
        return OwnBoard()
    from torch.distributed import distributed_c10d  # noqa: PLC0415 - a single process does without

    return StoreBoard(distributed_c10d._get_default_store())


class Signals:
    """Notes SIGTERM and SIGUSR1 while a training runs. Does nothing outside the main thread."""

    def __init__(self) -> None:
        self.notice: Notice | None = None
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Begin to note signals. One that the script handles itself is noted and handed on."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}

    def restore(self) -> None:
        """Put the handlers back that stood before, unless somebody has put others over ours."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, before if before is not None else signal.SIG_DFL)
        self._before = {}

    def obey(self, notice: Notice) -> None:
        """End as the signal would have ended the process, now that everything is saved."""
        self.notice = None
        if notice.signal is signal.SIGTERM and not callable(self._before.get(notice.signal)):
            self.restore()
            signal.raise_signal(notice.signal)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.notice is None or self.notice.signal is not signal.SIGTERM:  # the time left counts from the first one
            self.notice = Notice(signal.Signals(number), time.monotonic())
        before = self._before.get(signal.Signals(number))
        if callable(before):
            before(number, frame)

"""The fence: no optimizer steps while a save still reads what the step changes.

It stands in torch's global pre-step hook, because frameworks step where they like (DeepSpeed inside backward). Whatever
is still live is copied into the pool there, at memory speed.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from . import memory
from .device import capturing_graph
from .errors import AbandonedError
from .live import SeenOptimizers, identities
from .pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from .pool import Pool
    from .settings import Settings
    from .snapshot import Settled, Snapshot

log = logging.getLogger("datastates.engine")


class Fence:
    """Guards the snapshots that it is told to watch.

    `before_step` is called ahead of each optimizer step, `note` with what a wait cost; `saving` says whether a save is
    under way, for the measurement of what saves cost.
    """

    def __init__(self, settings: Settings, pool: Pool, saving: Callable[[], bool]) -> None:
        self.pace = Pace()
        self.before_step: list[Callable[[], None]] = []
        self.note: Callable[[Settled], None] = lambda _: None
        self._settings = settings
        self._pool = pool
        self._saving = saving
        self._pid = os.getpid()
        self._seen = SeenOptimizers()
        self._watched: list[tuple[Snapshot, str]] = []
        self._lock = threading.Lock()
        self._unhook: Callable[[], None] | None = self._hook()

    def watch(self, snapshot: Snapshot, what: str) -> None:
        """Let no optimizer step before the snapshot is settled; `what` it is of, for messages."""
        self._watched = [(other, name) for other, name in self._watched if other.reads_live_memory]
        self._watched.append((snapshot, what))

    def settle(self) -> None:
        """Return when no live tensor is read any more. Costs nothing when that is so already."""
        for snapshot, what in self._watched:
            if snapshot.reads_live_memory:
                self._settle(snapshot, what)

    def copies_late(self) -> bool:
        """Whether a save may copy parameters after it returns: only behind a hook that is seen to work."""
        if self._settings.copy == "eager" or not self._seen.any:
            return False
        return self._settings.copy == "lazy" or self.pace.prefer_lazy()

    def live(self, vouched: Iterable[torch.Tensor] = ()) -> frozenset[int]:
        """Return the identities of what changes in optimizer steps only; `vouched`: tensors known to be such."""
        return identities([*self._seen.tensors(), *(vouched if self._seen.any else ())])

    def forget_optimizers(self) -> None:
        """Begin a new interval between saves: only optimizers that step in it count."""
        self._seen.forget()

    def remove(self) -> None:
        """Let go of the optimizers."""
        if self._unhook is not None:
            self._unhook()
            self._unhook = None

    def _hook(self) -> Callable[[], None]:
        from torch.optim.optimizer import register_optimizer_step_pre_hook  # noqa: PLC0415 - torch is heavy

        return register_optimizer_step_pre_hook(self._before).remove

    def _before(self, optimizer: torch.optim.Optimizer, _args: object, _kwargs: object) -> None:
        if os.getpid() != self._pid:
            return
        if capturing_graph():
            self._leave_graph_alone(optimizer)
            return
        for call in self.before_step:
            call()
        if self._seen.step_of(optimizer):
            optimizer.register_load_state_dict_pre_hook(lambda *_: self.settle())
        self._pool.expect(self._seen.settled_bytes(optimizer))
        self.pace.step(time.monotonic(), saving=self._saving())
        self.settle()

    def _leave_graph_alone(self, optimizer: torch.optim.Optimizer) -> None:
        """This step is only recorded, and no wait of ours may be in the recording. Its replays come without a hook."""
        self._seen.distrust(optimizer)
        for snapshot, what in self._watched:
            if snapshot.reads_live_memory:
                snapshot.fail(AbandonedError(f"{what}: the optimizer's step was put into a CUDA graph meanwhile"))

    def _settle(self, snapshot: Snapshot, what: str) -> None:
        with self._lock:
            try:
                settled = snapshot.settle(self._settings.fence_timeout)
            except Exception as error:  # the optimizer must step; the save is lost
                snapshot.fail(error)
                log.error("%s given up: %s", what, error)
                _dump_stacks()
                return
        self._tell(settled)

    def _tell(self, settled: Settled) -> None:
        self.note(settled)
        if settled.starved:
            log.warning(
                "the optimizer waited %.2f s for the checkpoint's disk: the host pool (%.2f GiB) is full; "
                "raise host_cache_size or save less often",
                settled.starved,
                self._pool.limit / memory.GIB,
            )


def _dump_stacks() -> None:
    try:
        faulthandler.dump_traceback(all_threads=True)
    except (OSError, ValueError, AttributeError):  # stderr is no real file, under a notebook for example
        print("no stack dump: stderr has no file descriptor", file=sys.stderr)

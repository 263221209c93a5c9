"""A stand-in for a GPU: what is queued on its side stream happens in order, in a thread, and late.

The CPU trains at once and has no stream that could wait, so `hold_training` waits itself. What the stand-in shows is
that the engine asks for the right waits in the right places; tests/gpu shows the rest on a real one.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from slurm_ft.vendor.datastates._engine import capture
from slurm_ft.vendor.datastates._engine.image import Region


class LateEvent:
    """Complete once everything queued before it has happened."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def synchronize(self) -> None:
        assert self.over.wait(60)


class LateDevice:
    """Takes the place of `device.Device`. `delay`: seconds before each copy."""

    def __init__(self, delay: float, *, holds: bool = True) -> None:
        self.copies = 0
        self._delay, self._holds = delay, holds
        self._queue: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def follow(self) -> None:
        """The CPU has done what it was told before."""

    def copy(self, storage: Any, start: int, length: int, address: int) -> None:
        def late() -> None:
            time.sleep(self._delay)
            ctypes.memmove(address, storage.data_ptr() + start, length)
            self.copies += 1

        self._queue.put(late)

    def event(self) -> LateEvent:
        event = LateEvent()
        self._queue.put(event.over.set)
        return event

    def hold_training(self, event: LateEvent) -> None:
        if self._holds:
            event.synchronize()

    def _run(self) -> None:
        while True:
            self._queue.get()()


def use(monkeypatch: Any, *devices: LateDevice) -> None:
    """Let the training's tensors lie on the devices, one after the other."""
    new_region = capture.Capture._new_region
    turn = iter(range(1 << 30))

    def on_device(self: capture.Capture, storage: Any, key: int) -> Region:
        region = new_region(self, storage, key)
        if not region.private:
            region.device = devices[next(turn) % len(devices)]  # type: ignore[assignment]
        return region

    monkeypatch.setattr(capture.Capture, "_new_region", on_device)

"""Copies out of GPU memory: a side stream and events, so that neither the CPU nor the training's stream waits.

The order that makes it right: the side stream waits for an event that the training's stream records at the capture, so
it reads what the last step wrote; and the training's stream waits, on the GPU, for the copies before the next step.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Device:
    """One GPU's side stream."""

    def __init__(self, device: torch.device) -> None:
        import torch  # noqa: PLC0415 - heavy, and only needed where there is a GPU

        self._cuda: Any = torch.cuda  # not all of it is typed
        self.device = device
        self._stream = self._cuda.Stream(device=device)

    def follow(self) -> None:
        """Let later copies see everything that the calling thread has queued on its stream."""
        self._stream.wait_stream(self._cuda.current_stream(self.device))

    def copy(self, storage: torch.UntypedStorage, start: int, length: int, address: int) -> None:
        """Queue a copy of part of a storage to host memory. It needs `synchronize` or an event to be complete."""
        import torch  # noqa: PLC0415

        host = torch.frombuffer((ctypes.c_char * length).from_address(address), dtype=torch.uint8)
        source = torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage)
        with self._cuda.stream(self._stream):
            host.copy_(source[start : start + length], non_blocking=True)

    def event(self) -> Any:
        """Return an event after all copies queued so far."""
        event = self._cuda.Event(blocking=True)  # a waiting thread sleeps instead of spinning
        event.record(self._stream)
        return event

    def hold_training(self, event: Any) -> None:
        """Make the calling thread's stream wait for the event; the thread itself goes on."""
        self._cuda.current_stream(self.device).wait_event(event)


class Devices:
    """The side streams of the GPUs in use, made when first asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Any, Device] = {}

    def of(self, device: torch.device) -> Device:
        """Return the device's side stream."""
        with self._lock:
            if device not in self._known:
                self._known[device] = Device(device)
            return self._known[device]

    def follow(self) -> None:
        """`Device.follow` for each."""
        with self._lock:
            known = list(self._known.values())
        for device in known:
            device.follow()


class CudaPinner:
    """Page-locks pool memory for CUDA; without success the copies are slower, nothing else."""

    def pin(self, address: int, length: int) -> bool:
        """Return whether the memory is now page-locked."""
        return int(_cudart().cudaHostRegister(address, length, 0)) == 0

    def unpin(self, address: int) -> None:
        """Undo `pin`."""
        _cudart().cudaHostUnregister(address)


def _cudart() -> Any:
    import torch  # noqa: PLC0415

    cuda: Any = torch.cuda
    return cuda.cudart()

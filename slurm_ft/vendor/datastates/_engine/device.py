"""Copies out of GPU memory: a side stream and events, so that neither the CPU nor the training's stream waits.

The order that makes it right: the side stream waits for an event that the training's stream records at the capture, so
it reads what the last step wrote; and the training's stream waits, on the GPU, for the copies before the next step.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch

log = logging.getLogger("datastates.engine")

PORTABLE = 1  # cudaHostRegisterPortable: page-locked for the contexts of all GPUs, not only the current one's


class Device:
    """One GPU's side stream."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = _cuda().Stream(device=device)

    def follow(self) -> None:
        """Let later copies see everything that the calling thread has queued on its stream."""
        self._stream.wait_stream(_cuda().current_stream(self.device))

    def copy(self, storage: torch.UntypedStorage, start: int, length: int, address: int) -> None:
        """Queue a copy of part of a storage to host memory. `Copies` tells when it is complete.

        The allocator learns that the side stream reads the storage: one that is freed meanwhile is not given away.
        """
        import torch  # noqa: PLC0415

        host = torch.frombuffer((ctypes.c_char * length).from_address(address), dtype=torch.uint8)
        source = torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage)
        # A thread begins on GPU 0: with the second alone it would go back there, and make a context on it.
        with _cuda().device(self.device), _cuda().stream(self._stream):
            host.copy_(source[start : start + length], non_blocking=True)
        source.record_stream(self._stream)

    def event(self) -> Any:
        """Return an event after all copies queued so far."""
        event = _cuda().Event(blocking=True)  # a waiting thread sleeps instead of spinning
        event.record(self._stream)
        return event

    def hold_training(self, event: Any) -> None:
        """Make the calling thread's stream wait for the event; the thread itself goes on."""
        _cuda().current_stream(self.device).wait_event(event)


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies under way, from one GPU or several: the last event on the side stream of each."""

    events: Mapping[Device, Any]

    def wait(self) -> None:
        """Return when they are complete."""
        for event in self.events.values():
            event.synchronize()

    def hold_training(self) -> None:
        """Make the training's streams wait for them; the calling thread goes on."""
        for device, event in self.events.items():
            device.hold_training(event)


def copies_of(devices: Iterable[Device]) -> Copies | None:
    """Return all that is queued on the devices so far; None without a device."""
    events = {device: device.event() for device in devices}
    return Copies(events) if events else None


def latest(several: Iterable[Copies]) -> Copies:
    """Return what is complete when all of `several` are, the later ones coming last."""
    return Copies({device: event for copies in several for device, event in copies.events.items()})


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

    def __init__(self) -> None:
        self._device = -1  # the calling thread's
        self._told = False

    def prepare(self) -> None:
        """Called on the training's thread before another one pins: that begins on GPU 0, which may not be ours."""
        if _in_use():
            self._device = _cuda().current_device()

    def pin(self, address: int, length: int) -> bool:
        """Return whether the memory is now page-locked.

        Not before the training itself has used its GPU: to be the first would make a context on the current one, which
        may be another rank's.
        """
        if not _in_use():
            return False
        with _cuda().device(self._device):
            error = int(_cuda().cudart().cudaHostRegister(address, length, PORTABLE))
            if error:
                self._tell(error)
                _forget_error()
        return not error

    def unpin(self, address: int) -> None:
        """Undo `pin`."""
        with _cuda().device(self._device):
            if int(_cuda().cudart().cudaHostUnregister(address)):
                _forget_error()

    def _tell(self, error: int) -> None:
        if not self._told:
            log.warning("host memory could not be page-locked (CUDA error %d): copies from the GPU are slower", error)
        self._told = True


def capturing_graph() -> bool:
    """Whether what the calling thread queues goes into a CUDA graph instead of being run."""
    return _in_use() and bool(_cuda().is_current_stream_capturing())


def _forget_error() -> None:
    """Take CUDA's last error away from the training.

    torch's binding of cudaHostRegister leaves it (torch/csrc/cuda/shared/cudart.cpp, C10_CUDA_ERROR_HANDLED), and the
    check behind the training's next kernel would raise it. The check behind a kernel of our own reads and clears it.
    """
    import torch  # noqa: PLC0415

    with contextlib.suppress(RuntimeError):
        torch.ones(1, device="cuda")


def _in_use() -> bool:
    """Whether this process has begun to use a GPU."""
    return bool(_cuda().is_initialized())


def _cuda() -> Any:
    import torch  # noqa: PLC0415

    return torch.cuda  # not all of it is typed

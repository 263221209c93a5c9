"""Waits for NVML's events and prints them, as JSON lines. A program, run by path: see nvml_watch.py for who starts it.

    {"watching": ["0000:3b:00", "0000:5e:00"]}
    {"type": 8, "data": 79, "pci": "0000:3b:00"}
    {"alive": true}
    {"error": 15}

It stands alone, as nvml_child.py does. NVML may hang for ever in any of its calls; then no line comes, and whoever
reads draws the conclusion. It asks NVML nothing about a GPU that has reported a fault: that is when it hangs. The
program ends with its parent, so that nothing keeps a GPU open that no one watches.
"""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

WAIT_MS = 10_000
TIMEOUT = 10  # NVML_ERROR_TIMEOUT: nothing happened
XID, DOUBLE_BIT, RETIREMENT, RETIREMENT_FAILED = 0x8, 0x2, 0x400, 0x800
POISON_CONTAINED, POISON_FATAL, UNAVAILABLE = 0x1000, 0x2000, 0x4000
# Not 0x8000, a changed recovery action: the event does not say to what, and the epilog reads the action itself.
WANTED = XID | DOUBLE_BIT | RETIREMENT | RETIREMENT_FAILED | POISON_CONTAINED | POISON_FATAL | UNAVAILABLE


def say(**line: Any) -> None:
    """Write one line at once."""
    os.write(1, json.dumps(line).encode() + b"\n")


def register(nvml: Any, events: Any) -> dict[int, str]:
    """Ask for the events of all GPUs; returns the PCI address by the handle that an event will name."""
    addresses: dict[int, str] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            wanted = nvml.nvmlDeviceGetSupportedEventTypes(handle) & WANTED
            nvml.nvmlDeviceRegisterEvents(handle, wanted, events)
            bus = nvml.nvmlDeviceGetPciInfo(handle).busId
        except nvml.NVMLError:  # a GPU that is lost already must not keep the others from being watched
            continue
        addresses[number_of(handle)] = bus.decode() if isinstance(bus, bytes) else str(bus)
    return addresses


def number_of(handle: Any) -> int:
    """A handle is a pointer."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def watch(nvml: Any, parent: int) -> None:
    """Print events until NVML fails or the parent is gone."""
    nvml.nvmlInit()
    events = nvml.nvmlEventSetCreate()
    addresses = register(nvml, events)
    say(watching=sorted(addresses.values()))
    while os.getppid() == parent:
        try:
            event = nvml.nvmlEventSetWait_v2(events, WAIT_MS)
        except nvml.NVMLError as error:
            if error.value != TIMEOUT:
                raise
            say(alive=True)
        else:
            say(type=event.eventType, data=event.eventData, pci=addresses.get(number_of(event.device)))


def main() -> None:
    """Ends without nvmlShutdown, which may hang as well."""
    parent = os.getppid()
    os.closerange(3, 1024)
    try:
        import pynvml  # noqa: PLC0415 - what is missing is said, not raised
    except ImportError:
        say(error=12)
        return
    try:
        watch(pynvml, parent)
    except pynvml.NVMLError as error:
        say(error=error.value)
    except BrokenPipeError:  # nobody reads any more
        pass


if __name__ == "__main__":
    main()
    os._exit(0)

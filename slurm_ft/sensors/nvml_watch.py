"""NVML's event set as a source for the watcher: faults in the moment in which NVML reports them.

It tells what the kernel log may not: Xids where the driver's logging is off, errors without an Xid. It runs in a child
process (nvml_watch_child.py) that writes to a pipe, so a hanging NVML hangs nobody; a child that has said nothing for
SILENCE_S is killed. One that is stuck in the driver does not even die then; no second one is started beside it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from slurm_ft.errors import SlurmFtError
from slurm_ft.model import Event, EventKind
from slurm_ft.sensors import nvml
from slurm_ft.sensors.nvml_watch_child import (
    DOUBLE_BIT,
    POISON_CONTAINED,
    POISON_FATAL,
    RETIREMENT,
    RETIREMENT_FAILED,
    UNAVAILABLE,
    XID,
)
from slurm_ft.sensors.pci_address import canonical_pci

CHILD = Path(__file__).with_name("nvml_watch_child.py")
SILENCE_S = 60.0  # without persistence mode NVML takes seconds for each GPU to start; later a line comes every 10 s
MAX_LINE = 65536
# NVML's event type -> the name of a row in classify/gpu_state_facts.py, and words.
NAMES = {
    DOUBLE_BIT: ("ecc_uncorrected_now", "uncorrectable memory error"),
    RETIREMENT: ("row_remap_pending", "a memory row or page is to be retired"),
    RETIREMENT_FAILED: ("row_remap_failure", "a memory row or page could not be retired"),
    POISON_CONTAINED: ("poison_contained", "poisoned data was used, and contained"),
    POISON_FATAL: ("poison_fatal", "poisoned data was used, and not contained"),
    UNAVAILABLE: ("gpu_unavailable", "the GPU is unavailable"),
}


class NvmlWatch:
    """One child process and the pipe it writes to. Raises SlurmFtError where nvidia-ml-py is not installed."""

    def __init__(self) -> None:
        if not nvml.installed():
            raise SlurmFtError("nvml_events is on, and nvidia-ml-py is not installed", "pip install slurm_ft[nvml]")
        self._pipe, write = os.pipe()
        os.set_blocking(self._pipe, False)
        command = [sys.executable, "-I", str(CHILD)]
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, write, 1)]
        try:
            self._child = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        finally:
            os.close(write)
        self._rest = b""
        self._why = ""  # what NVML said when it ended
        self._heard = time.monotonic()

    def fileno(self) -> int:
        """What to poll for input."""
        return self._pipe

    @property
    def deadline(self) -> float:
        """When (monotonic) a child that has said nothing is to be given up."""
        return self._heard + SILENCE_S

    def read(self) -> tuple[Event, ...]:
        """The events that have come, without waiting. Raises OSError when none will come any more."""
        try:
            data = os.read(self._pipe, MAX_LINE)
        except BlockingIOError:
            return ()
        if not data:
            raise OSError(f"NVML's events have ended{self._why}")
        self._heard = time.monotonic()
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-MAX_LINE:]
        entries = [_entry(line) for line in lines]
        self._why = next((f" with error {entry['error']}" for entry in entries if "error" in entry), self._why)
        return tuple(event for event in map(event_of, entries) if event is not None)

    def close(self) -> None:
        """Kill the child."""
        os.close(self._pipe)
        os.kill(self._child, signal.SIGKILL)

    def gone(self) -> bool:
        """Whether the killed child has ended: one that is stuck in the driver has not."""
        try:
            return os.waitpid(self._child, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True


def _entry(line: bytes) -> dict[str, object]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def event_of(entry: dict[str, object]) -> Event | None:
    """The event of one line of the child; None for one that holds none. Pure."""
    kind, data = entry.get("type"), entry.get("data")
    if not isinstance(kind, int) or not isinstance(data, int):
        return None
    pci = canonical_pci(str(entry.get("pci")))
    where = f"NVML event: GPU {pci or 'unknown'}:"
    if kind == XID:
        return Event(EventKind.XID, data, pci, f"{where} Xid {data}")
    name, words = NAMES.get(kind, ("", ""))
    return Event(EventKind.GPU_STATE, None, pci, f"{where} {words}", name=name) if name else None

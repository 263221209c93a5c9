"""The NVML sensor: what NVIDIA's management library says of the job's GPUs after the attempt.

The library may hang for ever, so it runs in a child process (nvml_child.py, some 40 ms) that is killed when its time
is up. A process that hangs inside the driver does not even die then; nobody waits for it.

A node without nvidia-ml-py or without the driver's library has no such sensor. That is no blindness: the Evidence is
readable, empty, and its detail says so. `readable=False` is left for a library that is there and gave no answer that
can be used.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from slurm_ft.model import Evidence
from slurm_ft.sensors import nvml_events
from slurm_ft.sensors.bounded_process import run_bounded
from slurm_ft.sensors.nvml_reading import Reading, Snapshot, parse_reading

SENSOR = "nvml"
CHILD = Path(__file__).with_name("nvml_child.py")
BINDING = "pynvml"  # the module that nvidia-ml-py installs


def read_gpu_state(
    gpus: frozenset[str], before: Snapshot | None, timeout_s: float, *, explained: bool = False
) -> Evidence:
    """Ask NVML about the GPUs at these canonical addresses. Never raises, never takes much longer than `timeout_s`.

    `before` is the snapshot that the node Prolog took; `explained` see nvml_events.compare.
    """
    if not gpus:
        return Evidence(SENSOR, readable=True, detail="the job had no GPU that is known")
    if not installed():
        return Evidence(SENSOR, readable=True, detail="nvidia-ml-py is not installed")
    try:
        reading = take_reading(gpus, timeout_s)
    except OSError as error:
        return Evidence(SENSOR, readable=False, detail=f"NVML could not be asked: {error.strerror or error}")
    return evidence_of(reading, gpus, before, timeout_s, explained=explained)


def installed() -> bool:
    """Whether nvidia-ml-py is there; asking imports nothing."""
    return find_spec(BINDING) is not None


def take_reading(gpus: frozenset[str], timeout_s: float) -> Reading:
    """One look at the GPUs, in at most `timeout_s` seconds. Raises OSError if no process can be started."""
    output = run_bounded([sys.executable, "-I", str(CHILD), *sorted(gpus)], timeout_s)
    return parse_reading(output.text, output.took_s)


def evidence_of(
    reading: Reading, gpus: frozenset[str], before: Snapshot | None, timeout_s: float, *, explained: bool = False
) -> Evidence:
    """What a reading of `gpus` amounts to. Pure."""
    if reading.error == nvml_events.NOT_INSTALLED:
        return Evidence(SENSOR, readable=True, detail="NVML is not installed")
    judged = nvml_events.compare(reading, before, explained=explained)
    events, notes = list(judged.events), list(judged.notes)
    problem = _problem(reading)
    if not reading.complete and reading.took_s >= timeout_s:
        events.append(nvml_events.hang(_next(reading, gpus), timeout_s, before))
        problem = ""
    return Evidence(
        SENSOR, readable=not problem, events=tuple(events), detail="; ".join([problem, *notes][not problem :])
    )


def _next(reading: Reading, gpus: frozenset[str]) -> str | None:
    """The GPU that was being asked when the reading broke off; None: NVML's own start."""
    done = {gpu.pci for gpu in reading.gpus}
    return min(gpus - done, default=None) if reading.started else None


def _problem(reading: Reading) -> str:
    """Why the reading says nothing, or empty."""
    if not reading.complete:
        return "NVML's reader ended before its time" if reading.started else "NVML's reader gave no answer"
    if reading.error is not None and reading.error not in nvml_events.NODE_ERRORS:
        return f"NVML could not be started: error {reading.error}"
    closed = [gpu.pci for gpu in reading.gpus if gpu.errors.get("handle") == nvml_events.NO_PERMISSION]
    return f"no permission to open GPU {closed[0]}" if closed else ""

"""What NVML said of a node at one moment: the typed form of nvml_child's JSON lines. Pure, and never raises."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from slurm_ft.sensors.kernel_lines import printable
from slurm_ft.sensors.pci_address import canonical_pci

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU. `values` are NVML's numbers by name (counters since the driver was loaded, states), `errors` its error
    codes by the call that failed. The names are nvml_child's."""

    pci: str
    uuid: str = ""
    values: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a node's GPUs.

    `error` is NVML's code if it could not be started at all, `count` the number of GPUs that it sees. `complete` is
    False if the reading broke off. `took_s` is in seconds and counts from the start of the child process.
    """

    gpus: tuple[GpuReading, ...] = ()
    error: int | None = None
    count: int | None = None
    complete: bool = False
    started: bool = False  # NVML answered at all
    took_s: float = 0.0

    def gpu(self, pci: str) -> GpuReading | None:
        """The reading of the GPU at a canonical address."""
        return next((gpu for gpu in self.gpus if gpu.pci == pci), None)


Snapshot = Reading  # the one that the node Prolog took when the attempt began


def parse_reading(text: str, took_s: float = 0.0) -> Reading:
    """Read nvml_child's lines. What comes after a line that is none is not read."""
    node: Mapping[str, object] | None = None
    gpus: list[GpuReading] = []
    complete = False
    for line in text.splitlines():
        entry = _object(line)
        if node is None:
            if entry.get("schema") != SCHEMA:
                break
            node = entry
        elif entry.get("end") is True:
            complete = True
            break
        else:
            gpu = _gpu(entry)
            if gpu is None:
                break
            gpus.append(gpu)
    facts = node or {}
    error, count = _number(facts.get("error")), _number(facts.get("count"))
    return Reading(tuple(gpus), error, count, complete, node is not None, took_s)


def _gpu(entry: Mapping[str, object]) -> GpuReading | None:
    pci = canonical_pci(str(entry.get("pci")))
    if pci is None:
        return None
    uuid = printable(str(entry.get("uuid") or ""))[:96]
    return GpuReading(pci, uuid, _numbers(entry.get("values")), _numbers(entry.get("errors")))


def _object(line: str) -> Mapping[str, object]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _numbers(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    pairs = ((str(name), _number(number)) for name, number in value.items())
    return {name: number for name, number in pairs if number is not None}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None

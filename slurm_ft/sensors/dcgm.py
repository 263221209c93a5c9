"""The DCGM sensor: what NVIDIA's Data Center GPU Manager says of the job's GPUs, through `dcgmi` or a dcgm-exporter.

The site switches it on, so a DCGM that does not answer is blindness (`readable=False`), not absence. Nothing of what
it says is dated: a failure drains the node and convicts nobody. The exception is the exporter's windowed count of Xids.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass

from slurm_ft.model import Event, EventKind, Evidence
from slurm_ft.sensors import dcgm_exporter
from slurm_ft.sensors.bounded_process import run_bounded
from slurm_ft.sensors.gpu_inventory import uuids_of_driver
from slurm_ft.sensors.kernel_lines import printable
from slurm_ft.sensors.pci_address import canonical_pci

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SENSOR = "dcgm"
DCGMI = "/usr/bin/dcgmi"
WRAP = 54  # characters: dcgmi cuts the texts of its JSON into pieces of this length
# Slow-down by heat or power ends no job, and the driver's settings (persistence mode) are no hardware.
_NO_FAULT = re.compile(r"thermal|power|driver", re.IGNORECASE)
_GPU_ROW = re.compile(r"\| *([0-9]{1,4}) *\|")
_BUS_ID = re.compile(r"PCI Bus ID: *([0-9A-Fa-f:.]{10,20})")


@dataclass(frozen=True, slots=True)
class Incident:
    """One line of `dcgmi health`: DCGM's own number of the GPU, the watched system, Failure or Warning, the text."""

    gpu: int
    system: str
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Health:
    """What `dcgmi health -c -j` says; `problem` is why it says nothing."""

    incidents: tuple[Incident, ...] = ()
    problem: str = ""


def read_dcgm(where: str, gpus: frozenset[str], began_s_ago: float | None, timeout_s: float) -> Evidence:
    """Ask DCGM about the GPUs at these canonical addresses, for at most `timeout_s` seconds. Never raises.

    `where` is `dcgmi` or the URL of an exporter; `began_s_ago` is when the attempt began, None if that is not known.
    """
    if where != "dcgmi":
        return dcgm_exporter.read_exporter(where, gpus, uuids_of_driver(), began_s_ago, timeout_s)
    deadline = time.monotonic() + timeout_s
    answers = []
    for arguments in (("discovery", "-l"), ("health", "-c", "-j")):
        try:
            output = run_bounded([DCGMI, *arguments], max(deadline - time.monotonic(), 0), errors_too=True)
        except OSError as error:
            return Evidence(SENSOR, readable=False, detail=f"{DCGMI}: {error.strerror or error}")
        if not output.ended:
            return Evidence(SENSOR, readable=False, detail=f"dcgmi {arguments[0]} gave no whole answer in time")
        answers.append(output.text)
    return evidence_of(parse_health(answers[1]), parse_discovery(answers[0]), gpus)


def evidence_of(health: Health, addresses: Mapping[int, str], gpus: frozenset[str]) -> Evidence:
    """What DCGM's incidents say of the job's GPUs. Pure."""
    if health.problem:
        return Evidence(SENSOR, readable=False, detail=health.problem)
    missing = sorted(gpus - set(addresses.values()))
    if missing:
        return Evidence(SENSOR, readable=False, detail=f"dcgmi discovery does not list GPU {missing[0]}")
    events, notes = [], []
    for incident in health.incidents:
        pci = addresses.get(incident.gpu)
        words = f"DCGM: GPU {pci}: {incident.system}: {incident.level}: {incident.text}"
        if pci not in gpus:
            continue
        if _NO_FAULT.search(incident.system):
            notes.append(printable(words))
        else:
            name = "dcgm_failure" if incident.level == "Failure" else "dcgm_warning"
            events.append(Event(EventKind.GPU_STATE, None, pci, printable(words), name=name))
    return Evidence(SENSOR, readable=True, events=tuple(events), detail="; ".join(notes))


def parse_discovery(text: str) -> dict[int, str]:
    """DCGM's number of a GPU -> canonical address, from the table of `dcgmi discovery -l`."""
    found: dict[int, str] = {}
    number = None
    for line in text.splitlines():
        row, bus = _GPU_ROW.match(line), _BUS_ID.search(line)
        number = int(row[1]) if row else number
        pci = canonical_pci(bus[1]) if bus else None
        if pci is not None and number is not None:
            found[number] = pci
    return found


def parse_health(text: str) -> Health:
    """Read the answer of `dcgmi health -c -j`. Without watches (`dcgmi health -s a`) it is a sentence, not JSON."""
    try:
        root = json.loads(text)
    except (ValueError, RecursionError):
        words = printable(" ".join(text.split()))[:120]
        return Health(problem=f"dcgmi health gave no JSON ({words or 'no text'}); are its watches set (-s a)?")
    body = _child(root, "body")
    if "Overall Health" not in body:
        return Health(problem="dcgmi health gave JSON of an unknown shape")
    return Health(tuple(_incidents(body)))


def _incidents(body: Mapping[str, object]) -> Iterator[Incident]:
    for number, gpu in _child(body, "GPU", "children").items():
        if not (number.isascii() and number.isdigit() and len(number) <= 4):
            continue
        for system, entry in _child(gpu, "children", "Errors", "children").items():
            level = str(_child(entry).get("value", ""))
            if level in ("Failure", "Warning"):
                yield Incident(int(number), system, level, _unwrapped(_child(entry).get("overflow")))


def _unwrapped(pieces: object) -> str:
    """The text that dcgmi cut into pieces. A piece of full length was cut inside a word as likely as between two."""
    if not isinstance(pieces, list):
        return "" if pieces is None else str(pieces)
    texts = [str(piece) for piece in pieces]
    return "".join(text if len(text) >= WRAP or text.endswith(" ") else f"{text} " for text in texts).strip()


def _child(node: object, *names: str) -> dict[str, object]:
    """The object at the end of a path of names; an empty one where the path breaks off."""
    for name in names:
        node = node.get(name) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}

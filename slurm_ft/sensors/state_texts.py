"""Pasted answers of nvidia-smi, NVML, DCGM, lspci, ibstat and slurmctld -> events, for judging a case offline. Pure.

The wordings: NVML's nvmlErrorString, nvidia-smi, DCGM 4.6's dcgm_errors.c, pciutils, infiniband-diags, slurmctld 22.05
and 26.05, and public reports.
"""

from __future__ import annotations

import re

from slurm_ft.model import Event, EventKind
from slurm_ft.sensors.kernel_lines import parse_line, printable
from slurm_ft.sensors.pci_address import canonical_pci

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_TEXT = 2048

_GPU_TABLE = (
    ("gpu_lost", r"(?i)GPU is lost|GPU_IS_LOST|fallen off the bus|NVML_ERROR_GPU_IS_LOST"),
    ("pci_all_ones", r"\(rev ff\)|(?i:unknown header type 7f)"),
    ("device_handle_error", r"(?i)unable to determine the device handle"),
    ("driver_mismatch", r"(?i)driver/library version mismatch|version mismatch"),
    ("driver_missing", r"(?i)couldn't communicate with the NVIDIA driver|driver not loaded|DRIVER_NOT_LOADED"),
    ("power_missing", r"(?i)insufficient (?:external )?power|external power cable|INSUFFICIENT_POWER"),
    (
        "recovery_action",
        r"(?i)recovery action\s*:\s*(?:0x[1-9a-f]|GPU reset|reset|(?:node |system )?reboot|drain|recover|bus reset)",
    ),
    ("reset_required", r"(?i)(?:GPU |device )?(?:requires|needs|must be|need) (?:a |to be )?reset|RESET_REQUIRED"),
    ("reset_required", r"(?i)reset required|GPU Reset\s*:\s*Yes|Reset Required\s*:\s*Yes"),
    (
        "remap_failed",
        r"(?i)row remapping failed|remapping failure occurred\s*:\s*yes|remap\w*[ _]fail\w*\s*[:=]\s*(?:yes|1|true)",
    ),
    ("remap_failed", r"(?i)row remapp?er? fail"),
    ("remap_pending", r"(?i)remappings? (?:are|is) pending|pending\s*:\s*yes|pending retired pages|remap\w* pending"),
    (
        "ecc_uncorrected",
        r"(?i)detected [1-9][0-9]* volatile double-bit|\bDBE\b.{0,30}detected|uncontained (?:ECC )?error|XID 95\b"
        r"|volatile (?:DBE|double)\D{0,40}[1-9]"
        r"|volatile uncorr\w*\.?(?: ECC)?(?: errors?)?\s*[:=]\s*[1-9]"
        r"|ECC_ERRORS?_UNCORRECTED_VOLATILE_TOTAL\D{0,20}[1-9]|uncorrected\.volatile\S*\s*[:=]\s*[1-9]",
    ),
    ("inforom_error", r"(?i)CORRUPTED_INFOROM|CorruptedInforom|^corrupted infoROM"),
    ("inforom_corrupt", r"(?i)infoROM is corrupt|corrupt(?:ed)? infoROM"),
    ("interrupt_error", r"(?i)IRQ_ISSUE|interrupt (?:request )?issue"),
    ("slowdown", r"(?i)thermal|clocks? event|throttl|slowdown|power brake|power capp?ing"),
    ("nvlink_down", r"(?i)NvLink link [0-9]+ is (?:currently )?down|fatal errors? on NvSwitch"),
    (
        "gpu_missing",
        r"(?i)no devices were found|GPU_NOT_FOUND|GPU not found"
        r"|\b([0-9]+) (?:of|out of) (?!\1\b)[0-9]+ GPUs?",
    ),
    ("gpu_missing", r"(?i)\b([0-9]+) GPUs? expected,? (?:but |only )?(?!\1\b)[0-9]+"),
    ("gpu_missing", r"(?i)expected [0-9]+ GPUs?,? (?:but )?(?:found|got|saw) [0-9]+"),
    (
        "nvml_hang",
        r"(?i)(?:nvidia-smi|nvml|dcgmi?)\b.{0,60}"
        r"(?:hangs?\b|hung|timed out|time-?out|no answer|(?:does|did) not (?:return|answer|respond))",
    ),
    ("gpu_unreadable", r"ERR!.*ERR!|\[Unknown Error\]|(?i:GPU .{0,40}: Unknown Error)"),
)
_NIC_TABLE = (
    ("nic_link_down", r"(?i)(?:link_downed|LinkDownedCounter)\W+[1-9]"),
    ("nic_failed", r"(?i)health compromised|unrecoverable hardware error|firmware (?:fatal|crash)|fatal error"),
    (
        "nic_down",
        r"(?i)(?:^|\W)(?:port )?state\W+(?:[0-9]+: ?)?(?:port_)?down\b"
        r"|physical state\W+(?:[0-9]+: ?)?(?:disabled|polling|linkerrorrecovery)\b",
    ),
    (
        "nic_down",
        r"(?i)\b(?:port|link|ib[0-9]+|mlx5_[0-9]+)\b.{0,60}\b(?:is |state )?(?:down|not active)\b|NO-CARRIER|PORT_DOWN",
    ),
    ("nic_down", r"(?i)\b(?:mlx5_[0-9]+|hca|nic|ib[0-9]+)\b.{0,40}(?:is missing|not found|disappeared)"),
)
_SLURM_TABLE = (
    ("time_limit", r"(?i)time ?limit exhausted|DUE TO TIME LIMIT|reached time limit"),
    ("preempted", r"(?i)preempt"),
    (
        "node_fail",
        r"(?i)not responding, setting DOWN|unexpectedly rebooted|due to (?:failure of node|node failure)|on failed node"
        r"|NODE_FAIL|node failure|missing from batch node|Node \S+ now DOWN|setting (?:node \S+ )?(?:to )?DOWN",
    ),
    ("out_of_memory", r"OUT_OF_MEMORY|OOM|(?i:out of memory|memory limit)"),
    ("cancelled", r"(?i)REQUEST_KILL_JOB|_slurm_rpc_kill_job|REQUEST_CANCEL|scancel|CANCELLED"),
)
STATES = {
    "NODE_FAIL": "node_fail",
    "BOOT_FAIL": "node_fail",
    "OUT_OF_MEMORY": "out_of_memory",
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
    "CANCELLED": "cancelled",
    "PREEMPTED": "preempted",
}
_GPU, _NIC, _SLURM = (
    tuple((name, re.compile(pattern)) for name, pattern in table) for table in (_GPU_TABLE, _NIC_TABLE, _SLURM_TABLE)
)
_ADDRESS = re.compile(
    r"(?<![0-9a-fA-F:.])(?:GPU ?)?((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
    r"(?![0-9a-fA-F.]|:[0-9a-fA-F])"
)
# nvidia-smi -q: counters since the driver was loaded, and those of the card's whole life, which prove nothing.
_SECTION = re.compile(r"\s*(Volatile|Aggregate)\s*\Z")
_UNCORRECTED = re.compile(r"\s*(?:SRAM|DRAM|Total|Device Memory)?[A-Za-z ]*Uncorrectable[A-Za-z ]*\s*:\s*[1-9]")
_HEADER = re.compile(r"\s*GPU (?:[0-9]+ )?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\s*\Z")


def gpu_state_events(lines: Sequence[str]) -> tuple[Event, ...]:
    """What nvidia-smi, NVML, DCGM and lspci say. A line without an address belongs to the header above it."""
    events, section, counters = [], None, None
    for number, line in enumerate(lines, start=1):
        text = line[:MAX_TEXT]
        pci = _pci(text)
        if _HEADER.match(text):
            section = pci
        counters = _SECTION.match(text) or counters
        name = _first(_GPU, text)
        if name is None and counters and counters[1] == "Volatile" and _UNCORRECTED.match(text):
            name = "ecc_uncorrected"
        if name is not None:
            kind = EventKind.GPU_STATE
            events.append(Event(kind, None, pci or section, printable(text), line=number, name=name))
        elif (event := parse_line(text, number)) is not None:
            events.append(event)
    return tuple(events)


def nic_state_events(lines: Iterable[str]) -> tuple[Event, ...]:
    """What ibstat, ip or a health check say of the network ports."""
    return _named(lines, _NIC, EventKind.HOST)


def slurm_events(lines: Iterable[str], state: str = "") -> tuple[Event, ...]:
    """What the controller's log and Slurm's state of the job say."""
    name = STATES.get(state.strip().upper().partition(" ")[0].rstrip("+"))
    first = () if name is None else (Event(EventKind.SLURM, None, None, f"state {state}", name=name),)
    return first + _named(lines, _SLURM, EventKind.SLURM)


def _named(lines: Iterable[str], table: Sequence[tuple[str, re.Pattern[str]]], kind: EventKind) -> tuple[Event, ...]:
    found = ((number, line[:MAX_TEXT], _first(table, line[:MAX_TEXT])) for number, line in enumerate(lines, start=1))
    return tuple(
        Event(kind, None, None, printable(text), line=number, name=name) for number, text, name in found if name
    )


def _first(table: Sequence[tuple[str, re.Pattern[str]]], text: str) -> str | None:
    return next((name for name, pattern in table if pattern.search(text)), None)


def _pci(text: str) -> str | None:
    match = _ADDRESS.search(text)
    if match is None:
        return None
    address = match[1]
    return canonical_pci(address if address.count(":") == 2 else f"0000:{address}")

"""Kernel log lines -> events: Xid, SXid and "GPU has fallen off the bus". Pure: no clock, no I/O.

The line formats are those of NVIDIA's open kernel modules 595.45.04 and of public issues. Users choose process names
and file names, and other parts of the kernel print them, so the text is hostile: a message counts only if it *starts*
with the driver's own prefix, and a code counts only right after the first `): `.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_ft.model import Event, EventKind
from slurm_ft.sensors.host_lines import host_event
from slurm_ft.sensors.pci_address import canonical_pci

MAX_LINE = 8192  # characters; the kernel's own limit for one record of /dev/kmsg
MAX_SOURCE = 512  # characters of a line kept as evidence


@dataclass(frozen=True, slots=True)
class Record:
    """One record of /dev/kmsg. `at` is in seconds since boot, on the kernel log's own clock."""

    facility: int  # 0 is the kernel itself; a write to /dev/kmsg never gets 0
    sequence: int
    at: float
    continued: bool  # the rest of an earlier record: its start is not the start of a message
    message: str


_RECORD = re.compile(r"([0-9]{1,10}),([0-9]{1,20}),([0-9]{1,20}),([^,;\n]*)[^;\n]*;([^\n]*)")

# Every prefix is spelled out. A loose one ("anything up to NVRM:") would let a process named `NVRM:` or a file named
# like a log line be taken for the driver. What a text file cannot show is a newline inside another component's
# message, or a line that a user gave to syslog: text is for offline study, the epilog reads /dev/kmsg itself.
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
_ISO = rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ]{_CLOCK}(?:[.,][0-9]{{1,9}})?(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})?"
_SYSLOG_DATE = rf"[A-Z][a-z]{{2}} {{1,2}}[0-9]{{1,2}} {_CLOCK}(?:\.[0-9]{{1,9}})?"
_DMESG_DATE = rf"[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ 0-9][0-9] {_CLOCK} [0-9]{{4}}"
_DMESG_DELTA = r" *\+ *[0-9]{1,9}\.[0-9]{1,9}|[A-Z][a-z]{2} ?[ 0-9][0-9] [0-9]{2}:[0-9]{2}"
_HOST = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"
_LEVEL = r"(?:emerg|alert|crit|err|error|warn|warning|notice|info|debug)"
_FACILITY = r"(?:kern|user)"


def _bracket(name: str) -> str:
    """`[ 1234.5] `, `[30709s] `, `[  130.45] [ T1946] `; the seconds become group `name`."""
    return r"\[ *(?P<" + name + r">[0-9]{1,12}(?:\.[0-9]{1,9})?)s?\] (?:\[ *[TC][0-9]{1,10}\] )?"


# Left to the first call to compile: the epilog reads raw records and never needs it.
_PREFIX = (
    r"(?:<[0-9]{1,3}>)?(?:"
    + "|".join(
        (
            rf"{_bracket('monotonic')}(?:{_HOST} kernel: )?",  # dmesg; journalctl -o short-monotonic
            rf"{_FACILITY} *:{_LEVEL} *: (?:{_bracket('decoded')}|\[(?:{_DMESG_DATE})\] |{_ISO} )?",  # dmesg --decode
            rf"(?:{_SYSLOG_DATE}|{_ISO}) (?:{_HOST} )?kernel: (?:{_bracket('syslog')})?",
            rf"kernel: (?:{_bracket('bare')})?",
            rf"\[(?:{_DMESG_DATE}|{_DMESG_DELTA}|\.\.\.)\] ",  # dmesg -T, -e; the last one is how documents shorten it
            rf"[0-9a-fA-F.:]{{2,45}}: {_FACILITY}: +{_LEVEL}: \[{_ISO}\]: ",  # Talos
            rf"{_ISO} ",  # dmesg --time-format=iso
            rf"{_CLOCK} {{1,2}}",
        )
    )
    + r")?"
)

_ADDRESS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_END = r"(?:,|[ \t\r]*\Z)"
_MIG = r"(?: GPU-I:[0-9]{1,4})?(?: GPU-CI:[0-9]{1,4})?"
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?({_ADDRESS}|\.\.\.){_MIG}\): ([0-9]{{1,6}}){_END}")
_SXID = re.compile(rf"nvidia-nvswitch[0-9]{{1,4}}: SXid \(PCI:({_ADDRESS}|\.\.\.)\): ([0-9]{{1,6}}){_END}")
# The driver prints this one beside Xid 79, and the next at a probe: three lines in one printk, whose newlines
# /dev/kmsg shows as `\x0a` and syslog as `#012`.
_OFF_BUS = re.compile(rf"NVRM: GPU ({_ADDRESS}): GPU has fallen off the bus\.?[ \t\r]*\Z")
_NEWLINE = r"(?: |\\x0a|#012)(?:NVRM: )?"
_OFF_BUS_AT_PROBE = re.compile(
    rf"NVRM: The NVIDIA GPU ({_ADDRESS}){_NEWLINE}(?:\(PCI ID: [0-9a-fA-F]{{4}}:[0-9a-fA-F]{{4}}\){_NEWLINE})?"
    rf"installed in this{_NEWLINE}system has{_NEWLINE}fallen off the bus and is not responding to commands"
)
_PATTERNS = (
    (EventKind.XID, _XID),
    (EventKind.SXID, _SXID),
    (EventKind.OFF_BUS, _OFF_BUS),
    (EventKind.OFF_BUS, _OFF_BUS_AT_PROBE),
)
# What else the driver says about a GPU, without a code.
_STATES = (
    ("gpu_lost", re.compile(rf"nvidia ({_ADDRESS}): .{{0,60}}power state from D3cold to D0.{{0,20}}inaccessible")),
    ("rm_init_failed", re.compile(rf"NVRM: GPU ({_ADDRESS}): RmInitAdapter failed!")),
    (
        "gsp_timeouts",
        re.compile(
            rf"NVRM: Rate limiting GSP RPC error prints for GPU at PCI:({_ADDRESS}) .{{0,60}}likely needs to be"
        ),
    ),
)
_MISMATCH = "NVRM: API mismatch: "


def parse_record(text: str) -> Record | None:
    """Read one raw record `prio,seq,usec,flags[,...];message` of /dev/kmsg; None for anything else."""
    match = _RECORD.match(text[:MAX_LINE])
    if match is None:
        return None
    priority, sequence, microseconds, flags, message = match.groups()
    return Record(int(priority) >> 3, int(sequence), int(microseconds) / 1e6, flags == "+", message)


def parse_line(text: str, line: int | None = None) -> Event | None:
    """The event that one log line reports, or None.

    `text` is a raw /dev/kmsg record or a line of dmesg, journalctl or syslog. `line` is passed on to the event.
    """
    text = text[:MAX_LINE].rstrip("\r\n")
    record = parse_record(text)
    if record is not None:
        return event_of(record, text, line)
    start, at = _prefix(text)
    return _event(text[start:], text, at, line)


def event_of_message(message: str, line: int | None = None) -> Event | None:
    """The event that a kernel message without any prefix reports, or None."""
    message = message[:MAX_LINE].partition("\n")[0]
    return _event(message, message, None, line)


def event_of(record: Record, source: str, line: int | None = None) -> Event | None:
    """The event that a /dev/kmsg record reports, or None. `source` is the record as it was read."""
    if record.continued:
        return None
    return _event(record.message, source, record.at, line)


def _prefix(text: str) -> tuple[int, float | None]:
    """Where the message starts, and the seconds since boot that stand before it."""
    match = re.match(_PREFIX, text)
    if match is None:
        return 0, None
    seconds = next((group for group in match.groups() if group is not None), None)
    return match.end(), None if seconds is None else float(seconds)


def _event(message: str, source: str, at: float | None, line: int | None) -> Event | None:
    for kind, pattern in _PATTERNS:
        match = pattern.match(message)
        if match is not None:
            code = int(match[2]) if pattern.groups > 1 else None
            return Event(kind, code, canonical_pci(match[1]), printable(source), at, line)
    return _named_event(message, source, at, line)


def _named_event(message: str, source: str, at: float | None, line: int | None) -> Event | None:
    """An event without a code: a GPU's state in the driver's words, or one of the host."""
    for name, pattern in _STATES:
        match = pattern.match(message)
        if match is not None:
            return Event(EventKind.GPU_STATE, None, canonical_pci(match[1]), printable(source), at, line, name)
    found = ("driver_mismatch", None) if message.startswith(_MISMATCH) else host_event(message)
    if found is None:
        return None
    name, pci = found
    return Event(EventKind.HOST, None, canonical_pci(pci or ""), printable(source), at, line, name)


def printable(text: str) -> str:
    """`text` without control characters and cut to MAX_SOURCE: it ends up in Slurm comments and on terminals."""
    return "".join(character for character in text if character.isprintable())[:MAX_SOURCE]

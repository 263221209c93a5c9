from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.model import EventKind
from slurm_ft.sensors.kernel_lines import MAX_SOURCE, parse_line, parse_record
from slurm_ft.sensors.pci_address import canonical_pci

TSV = Path(__file__).resolve().parents[1] / "data" / "xid_lines.tsv"
ROWS = [line.split("\t") for line in TSV.read_text().splitlines() if line and not line.startswith("#")]
OFF_BUS_COMPANION = "NVRM: GPU 0000:a1:00.0: GPU has fallen off the bus."

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=python, GPU has fallen off the bus."
PREFIXES = {
    "": None,
    "4,12,1234567,-;": 1.234567,
    "4,12,1234567,-,caller=T1946;": 1.234567,
    "4,12,1234567,c;": 1.234567,
    "12,3,1000000,-;": 1.0,
    "[ 1234.5] ": 1234.5,
    "[16450076.435595] ": 16450076.435595,
    "[30709s] ": 30709.0,
    "[  130.456250] [ T1946] ": 130.45625,
    "[  130.456250] [    C0] ": 130.45625,
    "<4>[ 1234.5] ": 1234.5,
    "[...] ": None,
    "[Fri Apr  5 21:29:39 2024] ": None,
    "[May19 19:57] ": None,
    "[  +0.000127] ": None,
    "Dec  2 11:38:47 node1 kernel: [  219.470994] ": 219.470994,
    "Dec  2 11:38:47 node1 kernel: ": None,
    "Sep 16 05:21:47 kernel: ": None,
    "Dec 02 11:38:47.123456 node-1.example kernel: ": None,
    "2025-01-21T04:41:44+0000 node1 kernel: ": None,
    "2025-01-21T04:41:44.283302+00:00 node1 kernel: [ 12.5] ": 12.5,
    "[ 1234.567890] node1 kernel: ": 1234.56789,
    "kernel: ": None,
    "kernel: [16450076.435595] ": 16450076.435595,
    "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ": None,
    "kern  :warn  : [ 1234.5] ": 1234.5,
    "kern  :err   : [Fri Apr  5 21:29:39 2024] ": None,
    "192.0.2.10: kern: warning: [2026-04-22T21:25:20.458998481Z]: ": None,
    "19:15:34  ": None,
}
FOREIGN = [
    "traps: {}",
    "traps: {} general protection fault ip:7f sp:7f error:0 in libc.so",
    "python[123]: segfault at 0 ip 0 sp 0 error 4 in {}[5581+1000]",
    'audit: type=1326 audit(1.2:3): auid=1 comm="{}" exe="/x"',
    "Out of memory: Killed process 12 ({}) total-vm:1kB",
    "INFO: task {}:620917 blocked for more than 120 seconds.",
    "watchdog: BUG: soft lockup - CPU#7 stuck for 23s! [{}:25222]",
    "slurm_ft: {}",
    " {}",
    "usb 1-1: Product: {}",
    "NVRM: API mismatch: the client '{}' (pid 1)",
    "NVRM: Xid (PCI:0000:3b:00: {}",
    "in {}",
    "systemd[1]: Started {}",
]

anything = st.text(max_size=300)
addresses = st.from_regex(r"\A[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\Z")
comms = st.text(
    st.characters(blacklist_characters="\n\r;", blacklist_categories=("Cs",)), max_size=40
) | st.sampled_from(["NVRM: Xid (PCI:", "x): 79, pid=1", "ray::WorkerDict", "nvc:[driver]", "): 48,", "train.3"])


@pytest.mark.parametrize(("source", "code", "line"), ROWS, ids=[f"{row[1]}-{n}" for n, row in enumerate(ROWS)])
def test_lines_seen_in_the_field(source: str, code: str, line: str) -> None:
    event = parse_line(line)
    if code == "-" and OFF_BUS_COMPANION in line:
        assert event is not None
        assert (event.kind, event.code, event.pci) == (EventKind.OFF_BUS, None, "0000:a1:00")
    elif code == "-":  # some say something of their own, but never a code
        assert event is None or (event.kind, event.code) == (EventKind.GPU_STATE, None)
    elif code == "NONE":
        assert event is None
    else:
        assert event is not None
        kind = EventKind.SXID if code.startswith("SXID:") else EventKind.XID
        assert (event.kind, event.code) == (kind, int(code.removeprefix("SXID:")))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefixes(prefix: str) -> None:
    event = parse_line(prefix + XID, line=3)
    assert event is not None
    assert (event.kind, event.code, event.pci, event.line) == (EventKind.XID, 79, "0000:3b:00", 3)
    assert event.at == PREFIXES[prefix]
    assert event.source == prefix + XID


@pytest.mark.parametrize(
    ("attribute", "pci"),
    [
        ("PCI:0000:3b:00", "0000:3b:00"),
        ("0000:3b:00", "0000:3b:00"),
        ("PCI:0000:3B:1C", "0000:3b:1c"),
        ("PCI:0018:01:00", "0018:01:00"),
        ("PCI:10000:01:00", "10000:01:00"),
        ("PCI:0000:3b:00.0", "0000:3b:00"),
        ("PCI:0000:3b:00 GPU-I:05", "0000:3b:00"),
        ("PCI:0000:3b:00 GPU-I:05 GPU-CI:00", "0000:3b:00"),
        ("PCI:...", None),
    ],
)
def test_devices(attribute: str, pci: str | None) -> None:
    event = parse_line(f"NVRM: Xid ({attribute}): 48, pid=1, name=x, text")
    assert event is not None
    assert (event.code, event.pci) == (48, pci)


@pytest.mark.parametrize(
    ("text", "pci"),
    [
        ("00000000:3B:00.0", "0000:3b:00"),
        ("00010000:3B:00.0", "10000:3b:00"),
        ("0000:3b:00.0", "0000:3b:00"),
        ("3b:00.0", None),
        ("0000:3b:00.8", None),
        ("0000:3b:00\n", None),
        ("", None),
    ],
)
def test_one_spelling_of_an_address(text: str, pci: str | None) -> None:
    assert canonical_pci(text) == pci


def test_code_at_the_end_of_the_line() -> None:
    event = parse_line("NVRM: Xid (PCI:0000:3b:00): 46\n")
    assert event is not None
    assert event.code == 46


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:3b:00): 79x, GPU",
        "NVRM: Xid (PCI:0000:3b:00): -1, GPU",
        "NVRM: Xid (PCI:0000:3b:00): ٧٩, digits of another script",
        "NVRM: Xid (PCI:0000:3b:00): 79" + "9" * 20,
        "NVRM: Xid (PCI:0000:3b:00) 79, GPU",
        "nvrm: xid (PCI:0000:3b:00): 79, GPU",
        "4,12,1234567,+;" + XID,  # the rest of another record
        "4,12,1234567,-; " + XID,
        "comm=x\n" + XID,
        "NVRM: fallen off the bus and is not responding to commands.",  # names no device
    ],
)
def test_no_event(line: str) -> None:
    assert parse_line(line) is None


@pytest.mark.parametrize("newline", ["\\x0a", "#012", " "])
def test_off_the_bus_at_a_probe(newline: str) -> None:
    line = newline.join(
        (
            "4,12,1234567,-;NVRM: The NVIDIA GPU 0000:B3:00.0",
            "NVRM: (PCI ID: 10de:26b5) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        )
    )
    event = parse_line(line)
    assert event is not None
    assert (event.kind, event.code, event.pci) == (EventKind.OFF_BUS, None, "0000:b3:00")


def test_sxid_and_its_companion_lines_have_the_same_code() -> None:
    for rest in ("Fatal, Link 30 LTSSM Fault Up", "Severity 1 Engine instance 30", "Data {0x00000010, 0x00000000}"):
        event = parse_line(f"[ 12.5] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, {rest}")
        assert event is not None
        assert (event.kind, event.code, event.pci) == (EventKind.SXID, 20034, "0000:05:00")


def test_the_source_is_bounded_and_printable() -> None:
    event = parse_line("[ 1.5] NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=\x1b[2J\x07\u202e, " + "x" * 9000)
    assert event is not None
    assert len(event.source) == MAX_SOURCE
    assert event.source.isprintable()


def test_record() -> None:
    record = parse_record("12,345,6789000,-;slurm_ft: start job=12.0 node=n1 id=1\n SUBSYSTEM=x")
    assert record is not None
    assert (record.facility, record.sequence, record.at, record.continued) == (1, 345, 6.789, False)
    assert record.message == "slurm_ft: start job=12.0 node=n1 id=1"
    assert parse_record(" SUBSYSTEM=pci") is None


@given(anything | st.builds(lambda a, b: a + XID[:40] + b, anything, anything))
def test_no_text_crashes_it(text: str) -> None:
    event = parse_line(text)
    if event is not None and event.code is not None:
        assert event.code == int(text.partition("): ")[2].partition(",")[0].strip())


@given(st.sampled_from(list(PREFIXES)), addresses, st.integers(0, 200), anything)
def test_the_code_is_the_one_after_the_bracket(prefix: str, address: str, code: int, rest: str) -> None:
    event = parse_line(f"{prefix}NVRM: Xid (PCI:{address}): {code}, {rest}")
    assert event is not None
    assert (event.code, event.pci) == (code, address)


@given(st.sampled_from(list(PREFIXES)), st.integers(0, 200), comms)
def test_a_process_name_changes_nothing(prefix: str, code: int, comm: str) -> None:
    event = parse_line(f"{prefix}NVRM: Xid (PCI:0000:3b:00): {code}, pid=1, name={comm}, Ch 0000000a")
    assert event is not None
    assert (event.kind, event.code, event.pci) == (EventKind.XID, code, "0000:3b:00")


@pytest.mark.parametrize("message", FOREIGN)
@pytest.mark.parametrize(
    "line", [XID, "[ 1.5] " + XID, "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12020, Fatal, Link 1"]
)
def test_a_line_inside_another_components_text_is_no_event(message: str, line: str) -> None:
    events = [parse_line(prefix + message.format(line)) for prefix in PREFIXES]
    assert not any(event is not None and (event.code is not None or event.pci is not None) for event in events)


@given(st.sampled_from(list(PREFIXES)), st.from_regex(r"\A[a-z_]{1,12}(\[[0-9]+\])?: \Z"), anything)
def test_no_component_can_quote_an_event(prefix: str, component: str, text: str) -> None:
    if component != "kernel: ":
        assert parse_line(f"{prefix}{component}{text}{XID}") is None

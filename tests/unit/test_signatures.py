from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slurm_ft.classify.facts import FACTS
from slurm_ft.cli.case_file import CaseError, looks_like_case, read_cases
from slurm_ft.model import EventKind
from slurm_ft.sensors import host_lines, output_signatures, state_texts
from slurm_ft.sensors.host_lines import HINTS, host_event
from slurm_ft.sensors.journal_lines import journal_record
from slurm_ft.sensors.log_time import BOOT, CLOCK, DATE, YEARLESS, log_time
from slurm_ft.sensors.output_signatures import output_events, signature
from slurm_ft.sensors.state_texts import gpu_state_events, nic_state_events, slurm_events
from slurm_ft.sensors.text_log import events_in_lines, events_in_text

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=python, GPU has fallen off the bus."
words = st.sampled_from(
    (
        *(
            "NVRM: Xid (PCI:",
            "0000:3b:00",
            "): 79, ",
            "[Hardware Error]",
            "EDAC MC0: ",
            "UE ",
            "CUDA error: ",
            "NCCL WARN ",
        ),
        *("RuntimeError: ", "pyxis: ", "[ERROR] ", "[rank0]: ", "\x00", "\x1b[31m", "{", "}", '"', "=", "\u2028", "٣"),
        ": " * 40,
    )
)
texts = st.text(max_size=200) | st.lists(words, max_size=40).map("".join)


@given(st.lists(texts, max_size=5))
@example([": " * 5000])
@example(["a" * 100_000])
@example(["[" * 3000 + "RuntimeError: " * 300])
def test_no_text_crashes_a_parser(lines: list[str]) -> None:
    assert all(event.code is None for event in output_events(lines))
    assert all(event.code is None for event in (*nic_state_events(lines), *slurm_events(lines, "".join(lines))))
    for event in (*gpu_state_events(lines), *events_in_lines(enumerate(lines, 1))):
        assert event.code is None or f"): {event.code}" in lines[(event.line or 1) - 1]
    events_in_text("\n".join(lines).encode("utf-8", "surrogatepass"))
    for line in lines:
        host_event(line)
        log_time(line)
        journal_record(line)
        looks_like_case(line)


@given(texts)
def test_no_text_crashes_the_reader_of_cases(text: str) -> None:
    with suppress(CaseError):
        list(read_cases(text, "x.yaml"))


@given(texts)
def test_the_output_never_makes_a_hardware_event_of_the_kernel(text: str) -> None:
    assert {event.kind for event in output_events([text, XID, f"[12.5] {XID}"])} <= {EventKind.OUTPUT}


def test_every_name_has_a_fact() -> None:
    tables = {
        EventKind.HOST: [*host_lines._TABLE, *state_texts._NIC_TABLE],
        EventKind.OUTPUT: output_signatures._TABLE,
        EventKind.GPU_STATE: state_texts._GPU_TABLE,
        EventKind.SLURM: [*state_texts._SLURM_TABLE, *((name, "") for name in state_texts.STATES.values())],
    }
    missing = [(kind, row[0]) for kind, table in tables.items() for row in table if row[0] not in FACTS[kind]]
    assert missing == []
    somewhere = [name + output_signatures.SOMEWHERE for name in output_signatures._OF_HARDWARE]
    assert set(somewhere) <= FACTS[EventKind.OUTPUT].keys()


HOST_LINES = {
    "EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0 (channel:2 slot:0)": "edac_uncorrected",
    "EDAC MC0: UE page 0x0, offset 0x0, grain 0, row 1, labels": "edac_uncorrected",
    "EDAC skx MC3: CPU 10: Machine Check Event: 0 Bank 8: fc00010001010092": "mce_uncorrected",
    "EDAC skx MC3: CPU 10: Machine Check Event: 0 Bank 8: 8c00004000010090": "mce_corrected",
    "mce: [Hardware Error]: CPU 1: Machine Check Exception: 5 Bank 0: b200000000000005": "mce_uncorrected",
    "mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 7: 8c00004000010090": "mce_corrected",
    "[Hardware Error]: Uncorrected, software restartable error.": "mce_uncorrected",
    "[Hardware Error]: Corrected error, no action required.": None,
    "{1}[Hardware Error]: event severity: fatal": "mce_uncorrected",
    "{1}[Hardware Error]: event severity: recoverable": "cper_recoverable",
    "{1}[Hardware Error]: event severity: corrected": None,
    "Memory failure: 0xb757589: Killing python:4711 due to hardware memory corruption": "memory_failure",
    "pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010": "pcie_fatal",
    "pcieport 0000:00:02.0: AER: Uncorrectable (Fatal) error message received from 0000:02:00.0": "pcie_fatal",
    "pcieport 0000:00:02.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer": "pcie_fatal",
    "pcieport 0000:00:02.0: AER: Multiple Uncorrected (Non-Fatal) error received: 0000:00:02.0": "pcie_nonfatal",
    "pcieport 0000:00:02.0: AER: Corrected error received: id=0010": None,
    "mlx5_core 0000:5e:00.0: poll_health:800:(pid 0): device's health compromised - reached miss count": "nic_failed",
    "mlx5_core 0000:5e:00.0 ens1np0: Link down": "nic_link_down",
    "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff": "disk_failed",
    "blk_update_request: I/O error, dev nvme0n1, sector 1 op 0x0:(READ)": "disk_io_error",
    "I/O error, dev loop0, sector 1": None,
    "Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB": "oom_kill",
    "Out of memory: Killed process 4711 (dcgm-exporter) total-vm:1kB": "oom_kill_elsewhere",
    "python[4711]: segfault at 0 ip 00007f": None,
}


@pytest.mark.parametrize("message", HOST_LINES)
def test_host_lines(message: str) -> None:
    found = host_event(message)
    assert (found and found[0]) == HOST_LINES[message]
    assert found is None or any(hint in message.encode() for hint in HINTS)


@given(st.text(max_size=15), st.integers(1, 99999))
@example("EDAC MC0: 1 UE ", 1)
@example("mce: [Hardware ", 1)
@example("Memory failure:", 1)
def test_a_process_name_at_the_start_of_a_message_is_no_event(comm: str, pid: int) -> None:
    assert host_event(f"{comm}[{pid}]: segfault at 0 ip 00007f sp 00007f error 4 in libc.so.6[7f+1c5000]") is None


OUTPUT = {
    "RuntimeError: CUDA error: uncorrectable ECC error encountered": "cuda_ecc",
    "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered": "cuda_ecc",
    "12: RuntimeError: CUDA error: uncorrectable ECC error encountered": "cuda_ecc",
    "[default3]:  what():  CUDA error: uncorrectable ECC error encountered": "cuda_ecc",
    "node01:551:790 [2] enqueue.cc:1 NCCL WARN Cuda failure 'uncorrectable ECC error encountered'": "cuda_ecc",
    "Test CUDA failure common.cu:943 'uncorrectable ECC error encountered'": "cuda_unknown",
    'echo "CUDA error: uncorrectable ECC error encountered"': "cuda_unknown",
    "docs: CUDA error: uncorrectable ECC error encountered": "cuda_unknown",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB": "cuda_out_of_memory",
    "RuntimeError: CUDA error: device-side assert triggered": "device_assert",
    "RuntimeError: CUDA error: an illegal memory access was encountered": "cuda_illegal_access",
    "RuntimeError: CUDA error: unspecified launch failure": "cuda_launch_failure",
    "RuntimeError: CUDA error: unknown error": "cuda_unknown",
    "RuntimeError: NCCL communicator was aborted on rank 3.": "nccl_watchdog",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)": "python_exception",
    "AssertionError": "python_exception",
    '  File "train.py", line 7, in <module>': None,
    "step 100 loss 2.3 error 0.1": None,
    f"[12.5] {XID}": None,
}


@pytest.mark.parametrize("line", OUTPUT)
def test_signatures(line: str) -> None:
    assert signature(line) == OUTPUT[line]


@pytest.mark.parametrize(
    ("text", "clock"),
    [
        ("[  12.5] x", BOOT),
        ("6,1,12500000,-;x", BOOT),
        ("1234.5", BOOT),
        ("[Sat Oct 12 18:35:32 2024] x", DATE),
        ("2026-11-29T10:00:00,283302+00:00 x", DATE),
        ("kern  :warn  : 2025-01-21T04:41:44,283302+00:00 x", DATE),
        ("Mar 10 23:25:13 node01 kernel: x", YEARLESS),
        ("[May19 19:57] x", YEARLESS),
        ("19:15:34  x", CLOCK),
    ],
)
def test_clocks(text: str, clock: str) -> None:
    time = log_time(text)
    assert time is not None
    assert time.clock == clock


@pytest.mark.parametrize("text", ["", "[  +0.000316] x", "x", "[Sat Oct 99 18:35:32 2024] x", "[...] x"])
def test_no_clock(text: str) -> None:
    assert log_time(text) is None


def test_journal_records() -> None:
    record = journal_record('{"_TRANSPORT":"kernel","MESSAGE":[104,105,255],"_SOURCE_MONOTONIC_TIMESTAMP":"1500000"}')
    assert record is not None
    assert (record.message, record.since_boot, record.wall) == ("hi\ufffd", 1.5, None)
    assert journal_record('{"_TRANSPORT":"syslog","MESSAGE":"NVRM: Xid"}') is None
    assert journal_record("{" * 60_000) is None


def test_repeated_lines_count_once_with_the_first_place() -> None:
    events = events_in_text(f"[1.0] {XID}\nother\n[2.0] {XID}\n[3.0] {XID.replace('79', '48')}\n".encode())
    assert [(event.code, event.line) for event in events] == [(79, 1), (48, 4)]


def test_newest_first_is_turned_round() -> None:
    log = "\n".join(f"Mar 10 23:25:13 n1 kernel: NVRM: Xid (PCI:0000:3b:00): {code}, x" for code in (45, 94, 63, 48))
    newest_first = f"Mar 10 23:25:14 n1 kernel: {XID}\n{log}\n"
    assert [event.code for event in events_in_text(newest_first.encode())] == [48, 63, 94, 45, 79]


def dated(*times: str) -> list[tuple[int | None, int | None]]:
    """Code and line of events in the order in which they are taken to have happened."""
    lines = [f"{time} n1 kernel: NVRM: Xid (PCI:0000:3b:00): {79 + place}, x" for place, time in enumerate(times)]
    return [(event.code, event.line) for event in events_in_text("\n".join(lines).encode())]


def test_full_dates_keep_their_years_beside_dates_without() -> None:
    # By month and day alone the second line would be the oldest, and the first and third would meet.
    assert dated("2024-03-10T10:00:00", "2025-01-02T10:00:00", "Mar 10 09:00:00") == [(79, 1), (80, 2), (81, 3)]
    assert dated("2024-12-31T23:59:59", "Jan  1 00:00:05", "2025-01-01T00:00:07") == [(79, 1), (80, 2), (81, 3)]
    assert dated("Feb 29 10:00:00", "2024-02-29T10:00:01") == [(79, 1), (80, 2)]

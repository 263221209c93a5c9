from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_ft.sensors.kernel_log import MAX_REPEATS, Window, read_kernel_log

if TYPE_CHECKING:
    from slurm_ft.model import Evidence

KMSG = Path("/dev/kmsg")
MARKER = "slurm_ft: start job=12.0 node=n1 id=1234.56-3456"
GPU, OTHER = "0000:3b:00", "0000:5e:00"
GPUS = frozenset({GPU})


def record(seconds: float, message: str, *, sequence: int = 1, facility: int = 0) -> str:
    return f"{facility * 8 + 4},{sequence},{round(seconds * 1e6)},-;{message}\n"


def marker(seconds: float, text: str = MARKER) -> str:
    return record(seconds, text, facility=1)


def xid(
    seconds: float, code: int = 79, pci: str = GPU, rest: str = "pid=1, name=python, text", facility: int = 0
) -> str:
    return record(seconds, f"NVRM: Xid (PCI:{pci}): {code}, {rest}", facility=facility)


def window(
    start: float | None = 100.0, end: float | None = None, text: str | None = MARKER, boot: str | None = None
) -> Window:
    return Window(marker=text, start=start, end=end, grace=60.0, boot_id=boot)


def read(tmp_path: Path, *records: str, where: Window | None = None, gpus: frozenset[str] | None = GPUS) -> Evidence:
    path = tmp_path / "kmsg"
    path.write_text("".join(records))
    return read_kernel_log(path, where or window(), gpus)


def codes(evidence: Evidence) -> list[int | None]:
    return [event.code for event in evidence.events]


def test_only_lines_after_the_marker_count(tmp_path: Path) -> None:
    evidence = read(tmp_path, record(0, "Linux version 6"), xid(50, 48), marker(100), xid(150, 79))
    assert evidence.readable
    assert (codes(evidence), evidence.detail) == ([79], "")
    assert (evidence.events[0].at, evidence.events[0].line, evidence.events[0].pci) == (150.0, 4, GPU)


def test_the_last_marker_counts_whatever_the_clock_says(tmp_path: Path) -> None:
    # The uptime at the start was 500, but the print clock lags: only the log's own order tells.
    lines = (record(0, "boot"), marker(90), xid(95, 48), marker(100), xid(101, 79))
    assert codes(read(tmp_path, *lines, where=window(start=500.0))) == [79]


def test_times_are_uptimes_whatever_the_drift_of_the_print_clock(tmp_path: Path) -> None:
    lines = (record(0, "boot"), marker(90), xid(95, 79))
    (event,) = read(tmp_path, *lines, where=window(start=500.0)).events
    assert event.at == 505.0


def test_a_marker_of_the_kernel_or_of_another_attempt_is_none(tmp_path: Path) -> None:
    lines = (record(0, "boot"), marker(100), xid(110), record(120, MARKER, facility=0), marker(130, MARKER + "7"))
    assert codes(read(tmp_path, *lines)) == [79]
    assert codes(read(tmp_path, *lines, record(140, f"traps: {MARKER}"))) == [79]


def test_an_overwritten_log_is_not_clean_and_what_is_left_of_it_counts(tmp_path: Path) -> None:
    evidence = read(tmp_path, record(120, "later", sequence=900), xid(130))
    assert not evidence.readable
    assert not read(tmp_path, record(120, "later", sequence=900)).readable
    assert codes(evidence) == [79]
    assert "earlier lines were lost" in evidence.detail


def test_a_missing_marker_falls_back_on_the_time(tmp_path: Path) -> None:
    evidence = read(tmp_path, record(0, "boot"), xid(50, 48), xid(150, 79))
    assert evidence.readable
    assert codes(evidence) == [79]
    assert "marker" in evidence.detail


@pytest.mark.parametrize("sequence", [0, 900])
def test_a_missing_marker_without_a_time_is_unreadable(tmp_path: Path, sequence: int) -> None:
    evidence = read(tmp_path, record(50, "x", sequence=sequence), xid(60), where=window(start=None))
    assert not evidence.readable
    assert evidence.events == ()
    assert "marker" in evidence.detail


def test_without_any_start_nothing_is_known(tmp_path: Path) -> None:
    evidence = read(tmp_path, xid(60), where=window(start=None, text=None))
    assert not evidence.readable


def test_a_time_without_a_marker(tmp_path: Path) -> None:
    evidence = read(tmp_path, record(0, "boot"), xid(50, 48), xid(150), where=window(text=None))
    assert (codes(evidence), evidence.readable, evidence.detail) == ([79], True, "")


def test_lines_long_after_the_end_belong_to_a_later_job(tmp_path: Path) -> None:
    lines = (record(0, "boot"), marker(100), xid(255, 48), xid(261, 79))
    assert codes(read(tmp_path, *lines, where=window(end=200.0))) == [48]
    # The print clock runs 300 s behind the uptime: the marker shows it, and the end is moved by as much.
    assert codes(read(tmp_path, *lines, where=window(start=400.0, end=500.0))) == [48]


def test_other_gpus_and_unnamed_ones_are_no_evidence(tmp_path: Path) -> None:
    lines = (
        marker(100),
        xid(110, 79, OTHER),
        xid(111, 48, "..."),
        record(112, f"NVRM: GPU {OTHER}.0: GPU has fallen off the bus."),
    )
    assert read(tmp_path, *lines).events == ()
    assert codes(read(tmp_path, *lines, gpus=frozenset({OTHER}))) == [79, None]


def test_switch_errors_count_for_every_gpu(tmp_path: Path) -> None:
    line = record(110, "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12020, Fatal, Link 03 egress sequence ID error")
    assert codes(read(tmp_path, marker(100), line)) == [12020]


def test_injected_lines_count_as_the_drivers(tmp_path: Path) -> None:
    assert codes(read(tmp_path, marker(100), xid(110, facility=1))) == [79]


def test_continuation_lines_and_noise_pass(tmp_path: Path) -> None:
    noise = " SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n not a record\n\n"
    assert codes(read(tmp_path, record(0, "boot"), noise, marker(100), noise, xid(110), noise)) == [79]


def test_a_flood_does_not_push_out_another_code(tmp_path: Path) -> None:
    flood = [xid(110 + n / 100, 31, rest=f"pid={n}, name=x, MMU Fault") for n in range(5000)]
    evidence = read(tmp_path, marker(100), *flood, xid(170, 79))
    assert codes(evidence) == [31] * MAX_REPEATS + [79]
    assert "pid=4999," in evidence.events[MAX_REPEATS - 1].source  # the newest is among them


def test_identical_repeats_are_kept_once_but_not_a_change_back(tmp_path: Path) -> None:
    assert codes(read(tmp_path, marker(100), xid(110), xid(111), xid(112))) == [79]
    up, down = "GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)", "GPU recovery action changed from 0x1"
    back_and_forth = [xid(110 + n, 154, rest=text) for n, text in enumerate((up, down, up))]
    assert codes(read(tmp_path, marker(100), *back_and_forth)) == [154] * 3


def test_unknown_gpus_make_it_unreadable(tmp_path: Path) -> None:
    evidence = read(tmp_path, marker(100), xid(110), gpus=None)
    assert (evidence.readable, evidence.events) == (False, ())
    assert "which GPUs" in evidence.detail


def test_another_boot(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(marker(100) + xid(110))
    evidence = read_kernel_log(path, window(boot="a"), GPUS, boot_id="b")
    assert (evidence.readable, evidence.detail) == (False, "the node was rebooted during the attempt")
    assert read_kernel_log(path, window(boot="a"), GPUS, boot_id="a").readable
    assert not read_kernel_log(path, window(boot="a"), GPUS).readable  # not this machine's


def test_a_log_that_cannot_be_opened(tmp_path: Path) -> None:
    evidence = read_kernel_log(tmp_path / "none", window(), GPUS)
    assert not evidence.readable
    assert "No such file" in evidence.detail


def test_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    evidence = read_kernel_log(tmp_path, window(), GPUS)
    assert not evidence.readable
    assert "directory" in evidence.detail.lower()


@pytest.mark.parametrize("content", ["", "not a record\n", "\x00" * 9000])
def test_an_empty_answer_is_not_clean(tmp_path: Path, content: str) -> None:
    assert not read(tmp_path, content).readable


def test_bounds(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(marker(100) + xid(110, 79) + xid(111, 48))
    short = read_kernel_log(path, window(), GPUS, max_records=2)
    assert (short.readable, codes(short)) == (False, [79])
    assert "given up after 2 records" in short.detail
    assert not read_kernel_log(path, window(), GPUS, budget_s=-1.0).readable


def test_a_pipe_nobody_writes_to_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    started = time.monotonic()
    assert not read_kernel_log(tmp_path / "fifo", window(), GPUS).readable
    assert time.monotonic() - started < 1


def test_overwriting_while_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A FIFO stands for the device: one read, one answer.
    path = tmp_path / "fifo"
    os.mkfifo(path)
    answers: list[bytes | OSError] = [
        marker(100).encode(),
        BrokenPipeError(),
        xid(110).encode(),
        BlockingIOError(),
    ]

    def answer(descriptor: int, size: int) -> bytes:
        one = answers.pop(0)
        if isinstance(one, OSError):
            raise one
        return one

    monkeypatch.setattr(os, "read", answer)
    evidence = read_kernel_log(path, window(), GPUS)
    assert (evidence.readable, codes(evidence)) == (False, [79])
    assert "overwritten while they were read" in evidence.detail


needs_kmsg = pytest.mark.skipif(
    os.geteuid() != 0 or not os.access(KMSG, os.R_OK | os.W_OK), reason="needs root and a writable /dev/kmsg"
)


def drain(descriptor: int) -> bytes:
    seen = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            seen += os.read(descriptor, 8192)
    return seen


@needs_kmsg
def test_the_real_kernel_log() -> None:
    text = f"slurm_ft: start job=0.0 node=test id={os.getpid()}.{time.monotonic_ns()}"
    pci = f"00ff:{os.getpid() % 256:02x}:00"
    reader = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    try:
        drain(reader)
        for line in (f"NVRM: Xid (PCI:{pci}): 48, before", text, f"NVRM: Xid (PCI:{pci}): 79, pid=1, name=test, after"):
            # Without the newline the kernel keeps the record open for more text and shows it to nobody.
            KMSG.write_bytes(line.encode() + b"\n")
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
        where = Window(text, uptime, uptime, 60.0, Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        evidence = read_kernel_log(KMSG, where, frozenset({pci}))
        seen = drain(reader)
    finally:
        os.close(reader)
    assert evidence.readable
    assert codes(evidence) == [79]
    assert all(part in seen for part in (b"48, before", text.encode(), b"79, pid=1"))

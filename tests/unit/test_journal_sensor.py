from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from slurm_ft.sensors.journal import journal_records, raw_record
from slurm_ft.sensors.kernel_log import Window, read_kernel_log

GPU = "0000:3b:00"
MARKER = "slurm_ft: start job=12.0 node=n1 id=1"
WINDOW = Window(marker=MARKER, start=100.0, end=None, grace=60.0, boot_id=None)


def entry(at: float, message: str, facility: int = 0, transport: str = "kernel") -> str:
    fields = {
        "_TRANSPORT": transport,
        "MESSAGE": message,
        "_SOURCE_MONOTONIC_TIMESTAMP": str(int(at * 1e6)),
        "SYSLOG_FACILITY": str(facility),
        "PRIORITY": "4",
    }
    return json.dumps(fields) + "\n"


def xid(code: int) -> str:
    return f"NVRM: Xid (PCI:{GPU}): {code}, pid=1, name=python, text"


def journalctl(tmp_path: Path, content: str, tail: str = "") -> Path:
    (tmp_path / "journal").write_text(content)
    script = tmp_path / "journalctl"
    script.write_text(f"#!/bin/sh\n/bin/cat {tmp_path}/journal\n{tail}\n")
    script.chmod(0o755)
    return script


@pytest.fixture
def overwritten(tmp_path: Path) -> Path:
    """A ring buffer that begins long after the attempt."""
    path = tmp_path / "kmsg"
    path.write_text("6,900,900000000,-;something else\n")
    return path


def test_lines_that_the_ring_buffer_lost_are_in_the_journal(tmp_path: Path, overwritten: Path) -> None:
    log = entry(50, xid(48)) + entry(100, MARKER, 1) + entry(200, xid(79)) + entry(300, xid(62), transport="syslog")
    evidence = read_kernel_log(overwritten, WINDOW, frozenset({GPU}), journal=journalctl(tmp_path, log))
    assert [event.code for event in evidence.events] == [79]
    assert (evidence.readable, evidence.detail) == (True, "taken from the journal")


@pytest.mark.parametrize("content", ["", "no json\n", entry(500, "too late as well")])
def test_a_journal_that_knows_no_more_changes_nothing(tmp_path: Path, overwritten: Path, content: str) -> None:
    evidence = read_kernel_log(overwritten, WINDOW, frozenset({GPU}), journal=journalctl(tmp_path, content))
    assert "earlier lines were lost" in evidence.detail


def test_no_journalctl(tmp_path: Path, overwritten: Path) -> None:
    evidence = read_kernel_log(overwritten, WINDOW, frozenset({GPU}), journal=tmp_path / "missing")
    assert "earlier lines were lost" in evidence.detail


def test_a_log_that_reaches_back_needs_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(f"12,1,100000000,-;{MARKER}\n4,2,200000000,-;{xid(79)}\n")
    evidence = read_kernel_log(path, WINDOW, frozenset({GPU}), journal=tmp_path / "missing")
    assert ([event.code for event in evidence.events], evidence.detail) == ([79], "")


def test_a_journalctl_that_hangs_is_given_up(tmp_path: Path) -> None:
    script = journalctl(tmp_path, entry(1, "x"), "exec /bin/sleep 60")
    start = time.monotonic()
    assert len(list(journal_records(script, 0.0, start + 0.5))) == 1
    assert time.monotonic() - start < 5


def test_records() -> None:
    assert raw_record(entry(1.5, "a\nb", 1)) == b"12,0,1500000,-;a\\x0ab\n"
    assert raw_record('{"_TRANSPORT":"kernel","MESSAGE":"no time"}') is None

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft import log_marks
from slurm_ft.cli.banner import banner
from slurm_ft.log_marks import MAX_LINE, Kind, Mark

ENDED = 'slurm_ft: job 12 attempt 1/4 (restart 0) ended on n1 with exit code 1: hardware xid79 "NVRM"; n1 is drained'
AGAIN = "slurm_ft: job 12 attempt 2/4 (restart 1) starts again: attempt 1/4 ended on n1: xid79"


@pytest.mark.parametrize(
    ("line", "mark"),
    [
        (ENDED, Mark(Kind.ENDED, "12", "1", 0)),
        (AGAIN, Mark(Kind.AGAIN, "12", "2", 1)),
        ("==== slurm_ft job 12 attempt 2/4 · restart 1 · node(s) n2 ====", Mark(Kind.STARTS, "12", "2", 1)),
        ("==== slurm_ft job 12 attempt ? · restart 0 ====", Mark(Kind.STARTS, "12", "?", 0)),
        ("==== slurm_ft job 12 attempt 1/- · restart 0 ====", Mark(Kind.STARTS, "12", "1", 0)),
        ("==== slurm_ft job - attempt - · restart 0 ====", Mark(Kind.STARTS, "-", "-", 0)),
        ("==== slurm_ft job 12", Mark(Kind.STARTS, "12", "?", None)),
        ("slurm_ft: confirmed: training went on from step 20", None),
        ("slurm_ft: job 12 is well", None),
        (" " + ENDED, None),
        ("", None),
    ],
)
def test_what_each_line_says(line: str, mark: Mark | None) -> None:
    assert log_marks.read(line) == mark


def test_the_banner_that_is_printed_is_a_mark() -> None:
    environ = {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "3", "SLURM_JOB_NODELIST": "n[1-2]"}
    line = banner(environ, None, "step 4", datetime.now(timezone.utc))
    assert log_marks.read(line) == Mark(Kind.STARTS, "12", "?", 3)


@given(st.text(), st.integers(0, 10**9 - 1), st.integers(1, 2**32), st.integers(1, 101))
def test_a_line_reads_back_whatever_the_evidence_says(evidence: str, restart: int, job: int, attempt: int) -> None:
    for write, kind in ((log_marks.ended, Kind.ENDED), (log_marks.again, Kind.AGAIN)):
        line = write(job, f"{attempt}/101", restart, f"on n1: {log_marks.quote(evidence)}")
        assert line.isprintable()
        assert log_marks.read(line) == Mark(kind, str(job), str(attempt), restart)
        written = log_marks.as_bytes(line)
        assert len(written) <= MAX_LINE
        assert written.count(b"\n") == 1
        written.decode()


@given(st.text())
def test_no_line_is_too_odd_to_read(line: str) -> None:
    log_marks.read(line)
    log_marks.read(log_marks.BANNER + line)
    log_marks.read(log_marks.OURS + line)

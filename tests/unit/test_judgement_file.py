from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.model import Domain, Event, EventKind, Evidence, Verdict
from slurm_ft.node import judgement_file
from slurm_ft.node.judgement_file import MAX_LINES, MAX_TEXT, judgement

VERDICT = Verdict(Domain.UNKNOWN, "exit1:0", "no_hardware_signal", "The job ended with 1:0.")


def event(text: str = "x", at: float | None = 10.0) -> Event:
    return Event(EventKind.OUTPUT, None, None, text, at, name="python_exception")


ONE = judgement(
    VERDICT, [Evidence("job_output", readable=True, events=(event(), event(at=None)))], "12.0", now=1000.0, uptime=50.0
)


def test_comes_back_as_it_was_and_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = judgement_file.path_of(tmp_path, "n1")
    assert judgement_file.read(path) == []
    judgement_file.append(path, ONE)
    judgement_file.append(path, replace(ONE, attempt="13.0"))
    assert judgement_file.read(path) == [ONE, replace(ONE, attempt="13.0")]
    assert path.stat().st_mode & 0o007 == 0


def test_the_events_own_times_become_wall_times() -> None:
    assert ONE.seen[0].lines == ((960.0, "x"), (None, "x"))


def test_behind_a_torn_line_goes_on(tmp_path: Path) -> None:
    path = judgement_file.path_of(tmp_path, "n1")
    judgement_file.append(path, ONE)
    path.write_bytes(path.read_bytes()[:-20])
    judgement_file.append(path, ONE)
    assert judgement_file.read(path) == [ONE]


def test_stays_small_and_keeps_the_newest(tmp_path: Path) -> None:
    path = judgement_file.path_of(tmp_path, "n1")
    for number in range(60):
        judgement_file.append(path, replace(ONE, attempt=f"{number}.0"), max_size=4000)
    assert path.stat().st_size <= 4000
    assert judgement_file.read(path)[-1].attempt == "59.0"


def test_a_flood_of_evidence_is_cut() -> None:
    many = Evidence("kernel_log", readable=True, events=tuple(event("y" * 1000) for _ in range(100)))
    (seen,) = judgement(VERDICT, [many], "12.0", now=0.0, uptime=0.0).seen
    assert len(seen.lines) == MAX_LINES
    assert len(seen.lines[0][1]) == MAX_TEXT


@given(st.text(max_size=200))
def test_no_line_breaks_the_reader(line: str) -> None:
    judgement_file._parse(line)

"""A log in parts: what is shown as which attempt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.errors import SlurmFtError
from slurm_ft.logs import parts as parts_module
from slurm_ft.logs import survey as survey_module
from slurm_ft.logs.files import LogFile
from slurm_ft.logs.parts import divide, find_marks, of_job
from slurm_ft.logs.survey import UnreadableLogError, chosen, last_lines, survey


def banner(restart: int, job: int = 12) -> str:
    return f"==== slurm_ft job {job} attempt {restart + 1}/4 · restart {restart} · node(s) n1 ====\n"


def ended(restart: int, job: int = 12) -> str:
    return f"slurm_ft: job {job} attempt {restart + 1}/4 (restart {restart}) ended on n1 with exit code 1: hardware\n"


def again(restart: int, job: int = 12) -> str:
    return f"slurm_ft: job {job} attempt {restart + 1}/4 (restart {restart}) starts again: xid79\n"


def attempts(tmp_path: Path, text: str, job: str = "12") -> list[tuple[str, str]]:
    """Each part of the log of a job: attempt and text."""
    path = tmp_path / "log"
    path.write_text(text)
    found = survey([LogFile(str(path), 0)], job)
    data = path.read_bytes()
    return [(one.part.attempt, data[one.part.start : one.part.end].decode()) for one in found.chapters]


def test_a_log_without_marks_is_one_attempt(tmp_path: Path) -> None:
    assert attempts(tmp_path, "a\nb") == [("1", "a\nb")]
    assert attempts(tmp_path, "") == []


def test_banners_and_what_the_script_printed_before_them(tmp_path: Path) -> None:
    first = "modules loaded\n" + banner(0) + "step 1\n" + ended(0)
    second = "modules loaded\n" + banner(1) + "step 2\n"
    assert attempts(tmp_path, first + second) == [("1", first), ("2", second)]


def test_without_the_line_of_the_end_an_attempt_begins_with_its_banner(tmp_path: Path) -> None:
    first, second = banner(0) + "step 1\nmodules loaded\n", banner(1) + "step 2\n"
    assert attempts(tmp_path, first + second) == [("1", first), ("2", second)]


def test_the_line_of_the_restart_and_the_banner_are_of_one_attempt(tmp_path: Path) -> None:
    first, second = "step 1\n" + ended(0), again(1) + "modules loaded\n" + banner(1) + "step 2\n"
    assert attempts(tmp_path, first + second) == [("1", first), ("2", second)]


def test_plain_scripts_have_the_lines_of_the_ends_alone(tmp_path: Path) -> None:
    texts = ["a\n" + ended(0), "b\n" + ended(1), "c\n"]
    assert attempts(tmp_path, "".join(texts)) == [("1", texts[0]), ("2", texts[1]), ("3", texts[2])]


def test_a_node_that_died_leaves_no_line_of_the_end(tmp_path: Path) -> None:
    assert attempts(tmp_path, "a\n" + again(1) + "b\n") == [("1", "a\n"), ("2", again(1) + "b\n")]


def test_banners_of_each_task_of_one_attempt_divide_nothing(tmp_path: Path) -> None:
    text = banner(0) + "a\n" + banner(0) + "b\n"
    assert attempts(tmp_path, text) == [("1", text)]


def test_a_preempted_attempt_spends_no_failover_and_is_shown_with_its_number(tmp_path: Path) -> None:
    text = banner(0) + "a\n" + banner(1).replace("attempt 2", "attempt 1") + "b\n"
    assert [number for number, _ in attempts(tmp_path, text)] == ["1", "1"]


def test_of_several_jobs_in_one_file_only_the_own_part_is_shown(tmp_path: Path) -> None:
    text = "old\n" + banner(0, 11) + "x\n" + banner(0) + "mine\n" + ended(0) + banner(0, 13) + "y\n"
    assert attempts(tmp_path, text) == [("1", banner(0) + "mine\n" + ended(0))]
    assert len(attempts(tmp_path, text, "")) == 3


PIECES = st.sampled_from(["a\n", "slurm_ft: job \n", "==== slurm_ft job 12\n", "\n", *(
    make(restart, job) for make in (banner, ended, again) for restart in (0, 1, 2) for job in (12, 13)
)])  # fmt: skip


@given(st.lists(PIECES, max_size=12), st.integers(1, 200))
def test_the_parts_are_the_log(tmp_path_factory: pytest.TempPathFactory, pieces: list[str], block: int) -> None:
    """Nothing is lost or shown twice, in whatever blocks the file is read."""
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_text("".join(pieces))
    size = path.stat().st_size
    descriptor = os.open(path, os.O_RDONLY)
    try:
        whole = list(find_marks(descriptor, size))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parts_module, "BLOCK", block)
            assert list(find_marks(descriptor, size)) == whole
    finally:
        os.close(descriptor)
    found = divide(whole, size)
    places = [0, *(part.end for part in found)]
    assert [part.start for part in found] == places[:-1]
    assert places[-1] == size
    assert all(part.start < part.end for part in found)
    assert all(part.job in ("12", "") for part in of_job(found, "12"))


def test_a_line_without_an_end_is_not_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "BLOCK", 8192)
    assert [n for n, _ in attempts(tmp_path, "x" * 100_000 + "\n" + banner(1) + "y\n")] == ["1", "2"]


def two_files(tmp_path: Path) -> list[LogFile]:
    (tmp_path / "out").write_text("o1\n" + ended(0) + "o2\n")
    (tmp_path / "err").write_text(banner(0) + "e1\n" + banner(1) + "e2")
    return [LogFile(str(tmp_path / name), 0) for name in ("out", "err", "missing")]


def test_several_files_are_ordered_by_attempt(tmp_path: Path) -> None:
    found = survey(two_files(tmp_path), "12")
    assert [(Path(one.path).name, one.part.attempt) for one in found.chapters] == [
        ("out", "1"), ("err", "1"), ("out", "2"), ("err", "2"),
    ]  # fmt: skip
    assert [Path(one.path).name for one in chosen(found, "last")] == ["out", "err"]
    with pytest.raises(SlurmFtError, match=r"no attempt '7'\. It holds attempt 1, 2"):
        chosen(found, "7")


@pytest.mark.parametrize(
    ("lines", "kept"),
    [(0, ""), (1, "e2"), (2, banner(1) + "e2"), (3, "o2\n" + banner(1) + "e2"), (99, "o2\n" + banner(1) + "e2")],
)
def test_the_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int, kept: str) -> None:
    second = chosen(survey(two_files(tmp_path), "12"), "2")
    for block in (1, 7, 65536):
        monkeypatch.setattr(survey_module, "BLOCK", block)
        ends = last_lines(second, lines)
        shown = b"".join(Path(one.path).read_bytes()[one.part.start : one.part.end] for one in ends)
        assert shown.decode() == kept


def test_what_is_no_regular_file_or_not_ones_own_is_refused_with_its_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, why in ((tmp_path / "fifo", "not a regular file"), (tmp_path, "not a regular file")):
        with pytest.raises(UnreadableLogError, match=why):
            survey([LogFile(str(path), 0)])


def test_loose_names_are_looked_for_only_where_no_exact_one_is_there(tmp_path: Path) -> None:
    file = LogFile(str(tmp_path / "n1.12"), 0, f"{tmp_path}/\x01.12")
    for name, when in (("vm.12", 2), ("wm.12", 1), ("vm.13", 3)):
        (tmp_path / name).write_text(f"{name}\n")
        os.utime(tmp_path / name, (when, when))
    assert [Path(one.path).name for one in survey([file]).chapters] == ["wm.12", "vm.12"]
    (tmp_path / "n1.12").write_text("exact\n")
    assert list(survey([file]).seen) == [str(tmp_path / "n1.12")]

"""Following a log whose file comes late, grows, is truncated or replaced, until its job has ended for good."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_ft.errors import SlurmCommandError
from slurm_ft.logs.files import LogFile, log_files
from slurm_ft.logs.follow import Reader, follow
from slurm_ft.logs.tail import Piece, Tail
from slurm_ft.slurm.protocol import JobRecord, Streams


class TestTail:
    def test_a_file_that_is_not_there_yet_is_waited_for(self, tmp_path: Path) -> None:
        tail = Tail(str(tmp_path / "log"))
        assert tail.read() == Piece()
        (tmp_path / "log").write_text("a\n")
        assert (tail.read(), tail.read()) == (Piece(b"a\n"), Piece())

    def test_it_begins_where_it_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_text("abc")
        assert Tail(str(tmp_path / "log"), 1).read() == Piece(b"bc")

    def test_a_truncated_file_is_read_from_its_beginning(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        path.write_text("long text\n")
        tail = Tail(str(path))
        tail.read()
        path.write_text("new\n")
        assert "was truncated" in tail.read().event
        assert tail.read() == Piece(b"new\n")

    def test_of_a_replaced_file_nothing_is_lost(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        path.write_text("a")
        tail = Tail(str(path))
        tail.read()
        with path.open("a") as old:
            path.rename(tmp_path / "log.1")
            assert tail.read() == Piece()  # gone: the next may come
            old.write("b")
        path.write_text("c")
        assert tail.read() == Piece(b"b")
        assert "replaced" in tail.read().event
        assert tail.read() == Piece(b"c")

    def test_what_is_no_regular_file_is_refused(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "log")
        with pytest.raises(OSError, match="not a regular file"):
            Tail(str(tmp_path / "log")).read()


class Stage:
    """Slurm's answers one after the other, each with what is done before it."""

    def __init__(self, path: Path, *scenes: tuple[Callable[[], object], JobRecord | Exception | None]) -> None:
        self.path, self.text, self.said = path, b"", [""]
        self.scenes: Iterator[tuple[Callable[[], object], JobRecord | Exception | None]] = iter(scenes)

    def look(self) -> JobRecord | None:
        act, answer = next(self.scenes)
        act()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def write(self, path: str, text: bytes) -> None:
        self.text += text

    def follow(self, job: JobRecord) -> JobRecord | None:
        reader = Reader(
            self.look, lambda _: [LogFile(str(self.path), 0)], self.write, self.said.append, sleep=lambda _: None
        )
        return follow(reader, job, {})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_text("first\n")
    return path


def adds(log: Path, text: str) -> Callable[[], object]:
    def act() -> None:
        with log.open("a") as file:
            file.write(text)

    return act


def test_a_requeued_job_has_not_ended(log: Path, job_record: JobRecord) -> None:
    running = replace(job_record, state="RUNNING", restarts=0)
    again = replace(running, restarts=1, nodes="n2")
    stage = Stage(
        log,
        (adds(log, "ended\n"), replace(running, state="COMPLETING")),
        (lambda: None, replace(running, state="PENDING", restarts=1, nodes="")),
        (adds(log, "second\n"), again),
        (adds(log, "last\n"), replace(again, state="COMPLETED")),
    )
    last = stage.follow(running)
    assert last is not None
    assert (last.state, stage.text) == ("COMPLETED", b"first\nended\nsecond\nlast\n")
    assert stage.said == ["", "job 12: restart 1, PENDING"]


def test_a_controller_that_does_not_answer_ends_nothing(log: Path, job_record: JobRecord) -> None:
    running = replace(job_record, state="RUNNING")
    stage = Stage(log, (adds(log, "more\n"), SlurmCommandError("squeue", "failed", "down")), (lambda: None, None))
    assert stage.follow(running) is None
    assert stage.text == b"first\nmore\n"
    assert "followed all the same" in stage.said[1]


def test_a_file_that_cannot_be_read_any_more_is_said_once(log: Path, job_record: JobRecord) -> None:
    def becomes_a_fifo() -> None:
        log.unlink()
        os.mkfifo(log)

    running = replace(job_record, state="RUNNING")
    stage = Stage(log, (becomes_a_fifo, running), (lambda: None, running), (lambda: None, None))
    stage.follow(running)
    assert [line for line in stage.said if "not read any more: not a regular file" in line] != []
    assert len(stage.said) == 3  # replaced; not read any more


LEDGER = (
    'slurm_ft:{"v":1,"run":"r","excluded":["n1"],"attempts":[{"no":0,"nodes":"n[1,4]","started":1.0,"ended":2.0,'
    '"domain":"hardware","cause":"xid79","bad":["n1"],"counted":true}]}'
)


@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [
        ("/w/slurm-12.out", "/w/slurm-12.out", ["/w/slurm-12.out"]),
        ("slurm-%j.out", "", ["/w/slurm-12.out"]),
        ("/w/o.%N", "/w/e.log", ["/w/o.n1", "/w/e.log", "/w/o.n2"]),
        ("%x-%u-%t.log", "/dev/null", ["/w/train-alice-0.log"]),
        ("/dev/null", "/dev/null", []),
    ],
)
def test_the_files_of_a_job(job_record: JobRecord, stdout: str, stderr: str, expected: list[str]) -> None:
    job = replace(job_record, restarts=1, batch_host="n2", admin_comment=LEDGER, name="train", user="alice")
    assert [file.path for file in log_files(job, Streams(12, 1000, stdout, stderr, "/w"))] == expected


def test_the_files_of_an_arrays_task(job_record: JobRecord) -> None:
    """Measured on 22.05: without --output, squeue names the file that the task would have as no task."""
    job = replace(job_record, address="10_3")
    paths = [file.path for file in log_files(job, Streams(12, 1000, "/w/slurm-12.out", "/w/slurm-12.out", "/w"))]
    assert paths == ["/w/slurm-10_3.out", "/w/slurm-12.out"]
    paths = [file.path for file in log_files(job, Streams(12, 1000, "/w/%A.%a", "", "/w"))]
    assert paths == ["/w/10.3"]


def test_names_with_something_that_slurm_may_see_otherwise_have_a_loose_form(job_record: JobRecord) -> None:
    (file,) = log_files(replace(job_record, batch_host="n1"), Streams(12, 1, "/w/%x-%N-%j", "", "/w"))
    assert file.loose == "/w/\x01-\x01-12"
    (file,) = log_files(job_record, Streams(12, 1, "/w/%x", "", "/w"))
    assert file.loose == ""  # it would fit other jobs' files

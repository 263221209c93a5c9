"""`slurm-ft logs` with a Slurm in memory: what it shows and what it says when there is nothing to show."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm

from slurm_ft.cli.main import main
from slurm_ft.errors import SlurmCommandError
from slurm_ft.logs.screen import Screen
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord, Streams

BANNER = "==== slurm_ft job 12 attempt {}/4 · restart {} · node(s) n1 ====\n"
FIRST, SECOND = BANNER.format(1, 0) + "one\n", BANNER.format(2, 1) + "two\n"


@dataclass
class WithStreams(FakeSlurm):
    where: list[Streams] = field(default_factory=list)

    def jobs(self, filters: Sequence[str] = ()) -> list[JobRecord]:
        if "--jobs=13" in filters:
            raise SlurmCommandError("squeue", "failed with 1", "slurm_load_jobs error: Invalid job id specified")
        return super().jobs(filters)

    def streams(self, address: str) -> list[Streams]:
        return self.where


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job_record: JobRecord) -> WithStreams:
    job = replace(job_record, state="RUNNING", restarts=1, nodes="n1", batch_host="n1")
    fake = WithStreams({"12": job}, where=[Streams(12, os.geteuid(), "log", "log", str(tmp_path))])
    monkeypatch.setattr(CommandLine, "of", lambda _: fake)
    monkeypatch.setenv("SLURM_FT_CONFIG", str(tmp_path / "conf"))
    (tmp_path / "conf").write_text("")
    (tmp_path / "conf").chmod(0o644)
    (tmp_path / "log").write_text(FIRST + SECOND)
    return fake


def shown(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    capfd.readouterr()
    assert main(["logs", *arguments]) == code
    return capfd.readouterr()


@pytest.mark.usefixtures("slurm")
class TestOneFile:
    def test_all_of_it_is_shown_byte_for_byte(self, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        (tmp_path / "log").write_bytes((FIRST + SECOND).encode() + b"\x1b[1m\xff\rno line break")
        main(["logs", "12"])
        assert os.fsencode(capfd.readouterr().out).endswith(b"\x1b[1m\xef\xbf\xbd\rno line break")

    def test_one_attempt(self, capfd: pytest.CaptureFixture[str]) -> None:
        assert shown(capfd, "12", "--attempt", "1") == (FIRST, "")
        assert shown(capfd, "12", "--attempt", "last") == (SECOND, "")

    def test_the_last_lines(self, capfd: pytest.CaptureFixture[str]) -> None:
        assert shown(capfd, "12", "-n", "3") == ("one\n" + SECOND, "")
        assert shown(capfd, "12", "-n", "0") == ("", "")

    def test_an_attempt_without_a_mark_gets_a_heading(self, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        (tmp_path / "log").write_text("modules\n" + FIRST + SECOND)
        expected = "==> attempt 1 (restart 0) <==\nmodules\n" + FIRST + SECOND
        assert shown(capfd, "12") == (expected, "")

    def test_the_list(self, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        rows = [line.split() for line in shown(capfd, "12", "--list")[0].splitlines()]
        assert rows[1:] == [
            ["1", "0", str(len(FIRST.encode())), str(tmp_path / "log"), "-"],
            ["2", "1", str(len(SECOND.encode())), str(tmp_path / "log"), "-"],
        ]


@pytest.mark.usefixtures("slurm")
def test_the_list_says_of_what_an_attempt_ended(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    what = 'on n1 with exit code 1: hardware x\x1b[2J "NVRM: Xid"; n1 is drained'
    line = f"slurm_ft: job 12 attempt 1/4 (restart 0) ended {what}\n"
    (tmp_path / "log").write_text("a\n" + line)
    assert shown(capfd, "12", "--list")[0].endswith("/log  on n1 with exit code 1: hardware x?[2J\n")


@pytest.mark.usefixtures("slurm")
def test_a_name_that_commands_a_terminal_is_shown_escaped(
    slurm: WithStreams, capfd: pytest.CaptureFixture[str]
) -> None:
    slurm.where = [replace(slurm.where[0], stdout="\x1b[2J", stderr="")]
    assert "\x1b" not in shown(capfd, "12", code=1)[1]


def test_standard_error_in_a_file_of_its_own(
    slurm: WithStreams, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    slurm.where = [replace(slurm.where[0], stderr="err")]
    (tmp_path / "err").write_text(FIRST)
    (tmp_path / "log").write_text("out\n")
    out, _ = shown(capfd, "12")
    assert out == (
        f"==> attempt 1 (restart 0) · {tmp_path}/log <==\nout\n==> attempt 1 (restart 0) · {tmp_path}/err <==\n{FIRST}"
    )


def test_a_log_that_is_not_there(slurm: WithStreams, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "log").unlink()
    _, error = shown(capfd, "12", code=1)
    assert error == (
        f"slurm-ft: the log of job 12 is not on this machine: {tmp_path}/log. "
        "Is its disk mounted here? The job ran on n1\n"
    )
    slurm.set_job("12", state="PENDING", restarts=0, nodes="", reason="Resources")
    assert "has not started: Resources" in shown(capfd, "12", code=1)[1]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "one log is shown at a time"),
        (["12", "--file", "x"], "one log is shown at a time"),
        (["12,13"], "one log is shown at a time"),
        (["train"], "'train' names no job"),
        (["12", "-f", "--attempt", "1"], "--follow goes with"),
        (["12", "-f", "--list"], "--follow goes with"),
        (["--file", "/nowhere"], "there is no file /nowhere"),
        (["13"], "Slurm knows no job 13"),
        (["12", "--attempt", "9"], "holds no attempt '9'"),
    ],
)
@pytest.mark.usefixtures("slurm")
def test_what_cannot_be_shown_is_one_line(capfd: pytest.CaptureFixture[str], arguments: list[str], error: str) -> None:
    usage = any(word in error for word in ("one log", "names no job", "--follow"))
    out, said = shown(capfd, *arguments, code=2 if usage else 1)
    assert (out, said.count("\n")) == ("", 1)
    assert error in said


def test_a_job_of_srun_has_no_log(slurm: WithStreams, capfd: pytest.CaptureFixture[str]) -> None:
    slurm.set_job("12", batch=False)
    assert "is no batch job" in shown(capfd, "12", code=1)[1]


def test_an_array_is_asked_for_one_task(slurm: WithStreams, capfd: pytest.CaptureFixture[str]) -> None:
    job = slurm.job_records["12"]
    slurm.job_records = {f"10_{n}": replace(job, raw_id=n, address=f"10_{n}") for n in range(2, 13)}
    slurm.where = [replace(slurm.where[0], raw_id=n) for n in range(2, 13)]
    _, error = shown(capfd, "10", code=1)
    assert "job 10 is an array of 11 tasks, each with its own log. Name one: 10_2, 10_3," in error


def test_a_file_of_a_forgotten_job(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "old.log").write_text(FIRST + SECOND)
    assert shown(capfd, "--file", str(tmp_path / "old.log"), "--attempt", "2") == (SECOND, "")


def test_another_users_log_commands_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    for foreign, expected in ((True, b"a?[2J?b\tc\n"), (False, b"a\x1b[2J\xc2\x9bb\tc\n")):
        raw = io.BytesIO()
        monkeypatch.setattr("sys.stdout", Terminal(raw))
        Screen(foreign=foreign).write("log", b"a\x1b[2J\xc2\x9bb\tc\n")
        assert raw.getvalue() == expected
        monkeypatch.undo()

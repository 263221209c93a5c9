"""The command line of `slurm-ft status`, on a Slurm in memory."""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft import config as site
from slurm_ft import journal
from slurm_ft.cli import screen, status
from slurm_ft.config import Config
from slurm_ft.errors import SlurmCommandError, SlurmFtError, UsageError
from slurm_ft.failover import ledger, node_record
from slurm_ft.failover.policy import decide
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Attempt, Domain, JobEnd, Ledger, NodeVerdict
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord
from slurm_ft.status.fields import ALL, DEFAULT

OFF = SlurmCommandError("sacct", "failed with 1", "Slurm accounting storage is disabled")


class Accounts:
    """What sacct answers: rows as it prints them, or an error. Remembers what it was asked."""

    def __init__(self) -> None:
        self.answer: list[list[str]] | SlurmCommandError = OFF
        self.asked: list[str] = []

    def cells(self, program: str, arguments: object, _: int) -> list[list[str]]:
        self.asked = [program, *arguments("END")]  # type: ignore[operator]
        if isinstance(self.answer, SlurmCommandError):
            raise self.answer
        return self.answer


@pytest.fixture
def slurm(job_record: JobRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    fake = FakeSlurm.of(replace(job_record, state="RUNNING", nodes="n1", reason=""), node("n1"))
    monkeypatch.setattr(CommandLine, "of", lambda _: fake)
    monkeypatch.setattr(site, "load", lambda: Config(state_dir=tmp_path))
    return fake


@pytest.fixture
def accounts(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> Accounts:
    answers = Accounts()
    monkeypatch.setattr(slurm, "cells", answers.cells, raising=False)
    return answers


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser(add_help=False)
    status.configure(parser)
    return status.run(parser.parse_args(status.prepare(arguments)))


def test_filters_go_to_squeue_in_one_request(slurm: FakeSlurm) -> None:
    run("-u", "a,b", "-t", "R", "--me", "-p", "main", "-w", "n1", "-j", "12")
    asked = ("jobs", "--user=a,b", "--partition=main", "--nodelist=n1", "--states=RUNNING", "--me", "--jobs=12")
    assert slurm.calls == [asked, ("nodes", "")]


@pytest.mark.usefixtures("accounts")
def test_a_range_of_tasks_is_asked_for_task_by_task(slurm: FakeSlurm) -> None:
    slurm.job_records = {
        f"13_{at}": replace(slurm.job_records["12"], raw_id=13 + at, address=f"13_{at}") for at in (1, 2)
    }
    run("-j", "13_[1-2]")
    assert slurm.calls[0] == ("jobs", "--jobs=13_1,13_2")


@pytest.mark.parametrize("name", ["foo", "13_[", "13_[3-1]", "12;x", "--all", "13_[1%2]", "1" * 12])
@pytest.mark.usefixtures("slurm")
def test_what_names_no_job_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError):
        run(f"--jobs={name}")


def test_our_own_states_are_chosen_here(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    slurm.job_records["13"] = replace(slurm.job_records["12"], raw_id=13, address="13", state="FAILED")
    run("-h", "-t", "internalerror", "-o", "jobid")
    assert (slurm.calls[0], capsys.readouterr().out) == (("jobs",), "13\n")
    run("-h", "-t", "internalerror,R", "-o", "jobid", "--sort", "-jobid")
    assert capsys.readouterr().out == "13\n12\n"


def test_a_named_job_is_a_page_and_a_chosen_one_a_row(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("12") == 0
    assert capsys.readouterr().out.startswith("job 12 train of alice: Running")
    run("-j", "12")
    assert capsys.readouterr().out.startswith("JOBID")


def test_an_array_is_a_table_and_the_pages_of_those_with_news(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    state = ["RUNNING", "FAILED", *["FAILED"] * 6]
    slurm.job_records = {
        f"13_{at}": replace(slurm.job_records["12"], raw_id=13 + at, address=f"13_{at}", state=state[at])
        for at in range(8)
    }
    run("13")
    out = capsys.readouterr().out
    assert out.startswith("JOBID")
    assert "job 13_0" not in out
    assert out.count("\njob 13_") == status.STORIES
    assert "2 more have a story" in out


def test_parsable_and_json_hold_the_same(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    slurm.set_job("12", name="a|b", comment="[slurm_ft] \udcff")
    run("--parsable", "-o", "jobid,name,state,cause")
    assert capsys.readouterr().out == "JOBID|NAME|STATE|CAUSE\n12|a%7Cb|Running|\n"
    run("--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["held"]) == (1, None)
    (job,) = found["jobs"]
    assert (job["name"], job["state"], job["cause"], job["limit"], len(job["attempts"])) == (
        "a|b",
        "Running",
        None,
        3,
        1,
    )


@pytest.mark.parametrize("arguments", [("--json", "-h"), ("--json", "-o", "jobid")])
@pytest.mark.usefixtures("slurm")
def test_options_that_contradict_each_other_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        run(*arguments)


@pytest.mark.parametrize(
    "arguments", [("-i", "0"), ("-i", "x"), ("-t", "foo"), ("-o", "foo"), ("--json", "--parsable")]
)
@pytest.mark.usefixtures("slurm")
def test_a_wrong_option_is_argparses_exit_code(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2


def test_no_jobs_without_a_header_print_nothing(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    slurm.job_records.clear()
    run("--noheader")
    assert capsys.readouterr().out == ""


def test_slurm_that_does_not_answer_is_an_error_with_exit_code_1(slurm: FakeSlurm) -> None:
    slurm.refused.add("jobs")
    with pytest.raises(SlurmFtError) as caught:
        run()
    assert caught.value.exit_code == 1


def test_a_filter_that_slurm_refuses_is_a_usage_error(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> list[JobRecord]:
        raise SlurmCommandError("squeue", "failed with 1", "squeue: error: Invalid node name nosuch")

    monkeypatch.setattr(slurm, "jobs", refuse)
    with pytest.raises(UsageError, match="Invalid node name nosuch"):
        run("-w", "nosuch")


def test_a_machine_without_slurms_configuration_is_no_usage_error(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = """squeue: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host
squeue: error: fetch_config: DNS SRV lookup failed
squeue: fatal: Could not establish a configuration source"""

    def refuse(_: object) -> list[JobRecord]:
        raise SlurmCommandError("squeue", "failed with 1", said)

    monkeypatch.setattr(slurm, "jobs", refuse)
    with pytest.raises(SlurmFtError, match=r"Set SLURM_CONF, or slurm_conf in slurm_ft\.yaml") as caught:
        run()
    assert caught.value.exit_code == 1


@pytest.mark.usefixtures("slurm")
def test_a_user_that_does_not_exist_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    run("-u", "root,0,no-such-user")
    assert capsys.readouterr().err == "slurm-ft: no user is called 'no-such-user' on this machine\n"


@pytest.mark.parametrize("text", ["", ",", "+"])
@pytest.mark.usefixtures("slurm")
def test_a_table_without_any_field_is_a_usage_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run("-o", text)
    assert caught.value.code == 2
    assert "names no field" in capsys.readouterr().err


class TestRefresh:
    """-i shows the table again and again."""

    def test_until_ctrl_c_and_past_a_restart_of_the_controller(
        self, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        turns: Iterator[None] = iter([None, None])

        def sleep(seconds: float) -> None:
            assert seconds == 0.5
            slurm.refused.symmetric_difference_update({"jobs"})
            if next(turns, KeyboardInterrupt) is KeyboardInterrupt:
                raise KeyboardInterrupt

        monkeypatch.setattr(status.time, "sleep", sleep)
        assert run("-i", "0.5") == 0
        shown = capsys.readouterr()
        assert shown.out.count("JOBID") == 2
        assert shown.err.count("Unable to contact slurm controller") == 1

    def test_programs_get_one_document_a_line(
        self, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def stop(_: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(status.time, "sleep", stop)
        run("-i", "1", "--json")
        (line,) = capsys.readouterr().out.splitlines()
        assert json.loads(line)["jobs"]


class Terminal(io.StringIO):
    encoding = "ascii"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


class TestTerminal:
    @pytest.fixture
    def terminal(self, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
        """Lines as a terminal of sixty columns gets them."""
        monkeypatch.setenv("COLUMNS", "60")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)

        def lines(*arguments: str) -> list[str]:
            with monkeypatch.context() as patched:
                patched.setattr(sys, "stdout", Terminal())
                run(*arguments)
                return sys.stdout.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]

        return lines

    def test_sixty_columns_are_kept_and_what_is_missing_is_named(
        self,
        slurm: FakeSlurm,
        terminal: Callable[..., list[str]],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        slurm.set_job("12", name="nämlich", state="COMPLETING", reason="NonZeroExitCode")
        header, row = terminal()
        assert max(len(header), len(row)) <= 60
        assert row.split()[:5] == ["12", "Pending", "-", "failoverinprog+", "1/4"]
        assert "no room for PARTITION" in capsys.readouterr().err
        assert max(map(len, terminal("12"))) <= 60

    @pytest.mark.parametrize(
        ("variable", "value", "coloured"), [("X", "", True), ("NO_COLOR", "1", False), ("TERM", "dumb", False)]
    )
    def test_colours_are_for_terminals_that_want_them(
        self,
        variable: str,
        value: str,
        coloured: bool,
        terminal: Callable[..., list[str]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv(variable, value)
        assert ("\x1b[32mRunning" in terminal()[1]) is coloured

    def test_a_letter_that_the_terminal_does_not_know_is_a_question_mark(
        self, slurm: FakeSlurm, terminal: Callable[..., list[str]]
    ) -> None:
        slurm.set_job("12", name="训练")
        assert terminal("-h", "-o", "name") == ["??"]

    def test_a_pipe_is_plain_and_as_wide_as_it_gets(self) -> None:
        assert screen.screen_of(io.StringIO()) == screen.PAPER


FAILED_OVER = ledger.write(
    "", Ledger("r", (Attempt(0, "n1", 1000.0, 2000.0, Domain.HARDWARE, "xid79", ("n1",), counted=True),), ("n1",))
)
# As sacct 22.05 printed a job that failed over once and was cancelled, but for the names.
ROW = [
    "99", "99", "train|x", "alice", "main", "CANCELLED by 65534", "0:15", "1796078000", "1796078010", "1796078090",
    "n2", "1", "UNLIMITED", "", "normal", "", FAILED_OVER, "",
]  # fmt: skip


class TestForgotten:
    """Jobs that slurmctld does not know any more."""

    @pytest.mark.usefixtures("accounts")
    def test_a_job_that_nobody_knows_is_an_error_that_says_where_it_was_looked_for(self, slurm: FakeSlurm) -> None:
        slurm.job_records.clear()
        with pytest.raises(SlurmFtError, match="knows no job 99_9; accounting is off"):
            run("99_9")
        assert run() == 0

    @pytest.mark.usefixtures("accounts")
    def test_beside_one_that_is_known_it_is_a_note(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("-j", "12,99") == 0
        shown = capsys.readouterr()
        assert "knows no job 99" in shown.err
        assert len(shown.out.splitlines()) == 2

    def test_accounting_knows_finished_jobs_with_their_history(
        self, slurm: FakeSlurm, accounts: Accounts, capsys: pytest.CaptureFixture[str]
    ) -> None:
        slurm.job_records.clear()
        accounts.answer = [ROW]
        run("99")
        assert "--jobs=99" in accounts.asked
        out = capsys.readouterr().out
        assert "job 99 train|x of alice: Cancelled; 1 of 3 failovers spent" in out
        assert "restart 1: on n2" in out

    def test_the_list_has_them_too_where_it_is_asked_for(
        self, accounts: Accounts, capsys: pytest.CaptureFixture[str]
    ) -> None:
        running = [*ROW[:5], "RUNNING", "0:0", *ROW[7:9], "Unknown", *ROW[10:]]
        accounts.answer = [["12", "12", *ROW[2:]], ROW, ["98", "98", *running[2:]]]
        run("--since", "now-2days", "-p", "main", "-h", "-o", "jobid")
        assert accounts.asked[-3:] == ["--partition=main", "--allusers", "--starttime=now-2days"]
        assert capsys.readouterr().out.split() == ["12", "99"]  # 12 by squeue; 98 has not ended

    def test_accounting_that_does_not_answer_is_a_note(
        self, slurm: FakeSlurm, accounts: Accounts, capsys: pytest.CaptureFixture[str]
    ) -> None:
        accounts.answer = SlurmCommandError("sacct", "gave no answer within 10 s", "", busy=True)
        assert run("--since", "now-1hour") == 0
        shown = capsys.readouterr()
        assert "finished jobs: `sacct` gave no answer" in shown.err
        assert "\n12 " in shown.out

    def test_a_time_that_sacct_does_not_understand_is_a_usage_error(self, accounts: Accounts) -> None:
        accounts.answer = SlurmCommandError("sacct", "failed with 1", "Invalid time specification (pos=0): soon")
        with pytest.raises(UsageError, match="Invalid time"):
            run("--since", "soon")

    def test_an_answer_that_makes_no_sense_is_a_note(
        self, accounts: Accounts, capsys: pytest.CaptureFixture[str]
    ) -> None:
        accounts.answer = [["x", *ROW[1:]]]
        assert run("-j", "12,99") == 0
        assert "unexpected" in capsys.readouterr().err

    @pytest.mark.usefixtures("accounts")
    def test_the_journal_tells_an_admin_what_nobody_else_knows(
        self, job_end: JobEnd, fault: NodeVerdict, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        key = replace(job_end.key, raw_id=99, address="99")
        decision = decide(replace(job_end, key=key), [replace(fault, raw_id=99)], 0)
        journal.append(tmp_path, Entry(2001.0, Stage.DECIDED, key, "c", "run", mode="act", decision=decision))
        assert run("99") == 0
        out = capsys.readouterr().out
        assert "Slurm has forgotten it; this is what the journal holds" in out
        assert "xid79" in out


def test_a_node_that_failed_for_good_still_convicts_a_job_from_accounting(
    slurm: FakeSlurm, accounts: Accounts, fault: NodeVerdict, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.job_records.clear()
    last = replace(fault, node="n2", raw_id=99, attempt=1, at=1796078089.0)
    slurm.node_records["n2"] = node("n2", "idle+drain", node_record.add("", last))
    accounts.answer = [[*ROW[:5], "FAILED", "1:0", *ROW[7:-1], "[slurm_ft limit=1]"]]
    run("-h", "-j", "99", "-o", "state,cause,attempt")
    assert capsys.readouterr().out == "Pending - maxretriesexceeded  xid79  2/2\n"


def keys(value: object, depth: int = 0) -> Iterator[str]:
    """As docs/status.md writes them: a dot for each level."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield f"{'.' * depth}{name}{'[]' if isinstance(inner, list) else ''}"
        if isinstance(inner, list):
            yield from (key for one in inner for key in keys(one, depth + 1))


def test_the_page_lists_every_field_and_every_key_of_the_json(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.set_job("12", admin_comment=FAILED_OVER, restarts=1)
    run("--json")
    page = (Path(__file__).parents[2] / "docs" / "status.md").read_text()
    table, told = page.partition("## For programs")[::2]
    assert re.findall(r"^\| `(\w+)` \| (·?) *\|", table, re.MULTILINE) == [
        (name, "·" if name in DEFAULT else "") for name in ALL
    ]
    for field in ALL.values():
        assert f"{field.header}{': ' * bool(field.meaning)}{field.meaning} |" in table
    names = {name for row in re.findall(r"^\| (`.*?) \|", told, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)}
    assert set(keys(json.loads(capsys.readouterr().out))) == names


def test_a_named_job_that_another_filter_leaves_out_is_not_unknown(
    slurm: FakeSlurm, accounts: Accounts, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.job_records.clear()
    assert run("-h", "-j", "12", "-t", "R") == 0
    assert (capsys.readouterr().out, accounts.asked) == ("", [])

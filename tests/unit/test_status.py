from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

import pytest
from fake_slurm import FakeSlurm, node
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft import config as site
from slurm_ft.cli import status
from slurm_ft.config import Config
from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import ledger, node_record
from slurm_ft.model import Attempt, Domain, JobState, Ledger, NodeVerdict
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord
from slurm_ft.status import render
from slurm_ft.status.view import JobView, views

COUNTED = Attempt(0, "n1", 1000.0, 2000.0, Domain.HARDWARE, "xid79", ("n1",), counted=True, text="NVRM: Xid 79")
FAILED_OVER = {"restarts": 1, "admin_comment": ledger.write("", Ledger("r", (COUNTED,), ("n1",)))}
CANCELLED_BY_US = {
    "restarts": 1,
    "admin_comment": ledger.write("", Ledger("r", (replace(COUNTED, counted=False, bad_nodes=()),))),
}


@pytest.fixture
def view(job_record: JobRecord) -> Callable[..., JobView]:
    """The view of a job with these fields, whose nodes left these verdicts in their drain Reason."""

    def of(*faults: NodeVerdict, **fields: object) -> JobView:
        nodes = [node(fault.node, "idle+drain", node_record.add("", fault), "") for fault in faults]
        (one,) = views([replace(job_record, **fields)], nodes, Config())  # type: ignore[arg-type]
        return one

    return of


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"state": "RUNNING"}, JobState.RUNNING),
        ({"state": "RUNNING", **FAILED_OVER}, JobState.RUNNING),
        ({"state": "PENDING"}, JobState.PENDING),
        ({"state": "PENDING", **FAILED_OVER}, JobState.FAILOVER_IN_PROGRESS),
        ({"state": "PENDING", **FAILED_OVER, "restarts": 2}, JobState.PENDING),
        ({"state": "COMPLETING"}, JobState.FAILOVER_IN_PROGRESS),
        ({"state": "COMPLETING", "comment": ""}, JobState.FAILED),
        ({"state": "COMPLETING", "reason": "", "ended": None, **FAILED_OVER}, JobState.FAILOVER_IN_PROGRESS),
        ({"state": "COMPLETING", "reason": "", "exit_code": 0, **FAILED_OVER}, JobState.COMPLETED),
        ({"state": "COMPLETING", "reason": "RaisedSignal:9(Killed)"}, JobState.FAILOVER_IN_PROGRESS),
        ({"state": "COMPLETING", "reason": "Prolog", "exit_code": 0, "exit_signal": 15}, JobState.CANCELLED),
        ({"state": "COMPLETING", "reason": "TimeLimit"}, JobState.TIMEOUT),
        ({"state": "COMPLETING", "reason": "", "exit_code": 0}, JobState.COMPLETED),
        ({"state": "COMPLETING", "reason": "", "exit_signal": 15}, JobState.CANCELLED),
        ({"state": "FAILED"}, JobState.INTERNAL_ERROR),
        ({"state": "OUT_OF_MEMORY"}, JobState.INTERNAL_ERROR),
        ({"state": "FAILED", "comment": ""}, JobState.FAILED),
        ({"state": "COMPLETED"}, JobState.COMPLETED),
        ({"state": "CANCELLED"}, JobState.CANCELLED),
        ({"state": "CANCELLED", **FAILED_OVER}, JobState.CANCELLED),
        ({"state": "CANCELLED", **CANCELLED_BY_US}, JobState.MAX_RETRIES_EXCEEDED),
        ({"state": "PREEMPTED"}, JobState.PREEMPTED),
        ({"state": "TIMEOUT"}, JobState.TIMEOUT),
        ({"state": "DEADLINE"}, JobState.TIMEOUT),
    ],
)
def test_the_state_a_user_sees(view: Callable[..., JobView], fields: dict[str, object], state: JobState) -> None:
    assert view(**fields).state is state


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"comment": "[slurm_ft n=3/3]"}, JobState.MAX_RETRIES_EXCEEDED),
        ({"comment": "[slurm_ft n=2/3]"}, JobState.INTERNAL_ERROR),
        ({"comment": "[slurm_ft limit=0]"}, JobState.MAX_RETRIES_EXCEEDED),
        ({"requeue": False}, JobState.FAILED),
        ({"batch": False}, JobState.FAILED),
        ({"comment": ""}, JobState.FAILED),
    ],
)
def test_the_state_of_a_job_that_a_hardware_fault_ended_for_good(
    view: Callable[..., JobView], fault: NodeVerdict, fields: dict[str, object], state: JobState
) -> None:
    assert view(fault, state="FAILED", **fields).state is state


@pytest.mark.parametrize("change", [{"raw_id": 13}, {"attempt": 1}, {"at": 999.0}])
def test_a_verdict_on_another_job_or_attempt_is_not_this_jobs(
    view: Callable[..., JobView], fault: NodeVerdict, change: dict[str, object]
) -> None:
    """Job ids are reused: the node may have been drained before this job began."""
    one = view(replace(fault, **change), state="FAILED")  # type: ignore[arg-type]
    assert one.failovers.faults == ()
    assert one.cause == "exit1:0"


def test_the_cause_is_that_of_the_earliest_fault(view: Callable[..., JobView], fault: NodeVerdict) -> None:
    later = replace(fault, node="n2", cause="xid74", at=fault.at + 1)
    assert view(later, fault, state="FAILED").cause == "xid79"
    assert view(fault, state="FAILED", requeue=False).cause == "xid79 (not requeueable)"
    assert view(state="RUNNING", **FAILED_OVER).cause == "xid79"
    assert view(state="RUNNING").cause == ""


def test_the_count_is_the_greatest_of_both_records(view: Callable[..., JobView]) -> None:
    assert view(**{**FAILED_OVER, "comment": "[slurm_ft n=0/3]"}).failovers.count == 1
    assert view(**{**FAILED_OVER, "comment": "[slurm_ft n=2/3]"}).failovers.count == 2


class TestTable:
    def test_no_jobs_leave_the_header_or_nothing(self) -> None:
        assert render.table([]).split() == list(render.COLUMNS)
        assert render.table([], header=False) == ""

    def test_columns_are_aligned_and_never_empty(self, view: Callable[..., JobView]) -> None:
        table = render.table([view(state="RUNNING", nodes="n2", **FAILED_OVER), view(name="", comment="", reason="")])
        header, first, second = table.splitlines()
        assert first.split()[-6:] == ["Running", "2/4", "-", "xid79", "n1", "n2"]
        assert second.split()[-1] == "-"
        assert header.index("STATE") == first.index("Running")
        assert all(line == line.rstrip() for line in table.splitlines())

    def test_a_job_that_waits_shows_why(self, view: Callable[..., JobView]) -> None:
        assert render.table([view(state="PENDING", reason="BeginTime")], header=False).endswith("(BeginTime)")

    @pytest.mark.parametrize("field", ["name", "user", "partition", "reason", "nodes", "address"])
    def test_no_text_of_a_user_reaches_the_terminal_as_a_command(
        self, view: Callable[..., JobView], field: str
    ) -> None:
        hostile = "\x1b[2J\x07\r\n\x9b31m\u202e\udcff"
        one = view(**{field: hostile})
        for text in (render.table([one], header=False), render.story(one).replace("\n", "")):
            assert text.isprintable()

    @pytest.mark.parametrize(
        "excluded", ["!,n", "^x,y", "@all,n2", "a&b,c", "n1,\x1b(0", "(null),%", "n" * 200 + ",x", "*,?", "n1,n2!n2"]
    )
    def test_a_tag_that_a_user_forged_breaks_nobodys_status(self, view: Callable[..., JobView], excluded: str) -> None:
        one = view(comment=f"[slurm_ft n=1/3 ex={excluded}]")
        assert render.table([one], header=False).isprintable()
        assert render.story(one)

    def test_the_exclusions_of_a_forged_tag_stay_visible_as_they_are(self, view: Callable[..., JobView]) -> None:
        assert "!,n" in render.table([view(comment="[slurm_ft n=1/3 ex=!,n]")])


class TestResume:
    """Where the job says that it resumed."""

    def test_the_step_is_a_column(self, view: Callable[..., JobView]) -> None:
        table = render.table([view(state="RUNNING", comment="[slurm_ft.resume step=1200 attempt=0]")])
        header, row = table.splitlines()
        assert header.split()[6] == "LAST_STEP"
        assert row.split()[6] == "1200"

    @pytest.mark.parametrize(
        "text", ["step=none attempt=0", "step=\u0661\u0662 attempt=0", "step=-1 attempt=0", "step=1"]
    )
    def test_scratch_and_nonsense_show_no_step(self, view: Callable[..., JobView], text: str) -> None:
        assert render.table([view(comment=f"[slurm_ft.resume {text}]")], header=False).split()[6] == "-"

    def test_the_story_says_so_and_names_what_is_wrong(self, view: Callable[..., JobView]) -> None:
        tag = "[slurm_ft.resume step=20 attempt=3 since=1 alert=same_step]"
        text = render.story(view(state="RUNNING", restarts=3, comment=tag))
        assert text.endswith("Running; started from step 20, as the 2 attempt(s) before it; ALERT same_step")
        assert "started" not in render.story(view(state="RUNNING", restarts=4, comment=tag))


class TestStory:
    def test_tells_every_attempt(self, view: Callable[..., JobView]) -> None:
        lost = Attempt(1, "", None, 2500.0, Domain.UNKNOWN, "requeued_elsewhere", (), counted=False)
        history = ledger.write("", Ledger("r", (COUNTED, lost), ("n1",)))
        text = render.story(view(state="RUNNING", restarts=2, nodes="n2", admin_comment=history))
        head, first, evidence, second, present = text.splitlines()
        assert head == "job 12 train of alice: Running; 1 of 3 failovers spent"
        assert "restart 0" in first
        assert first.endswith("on n1: hardware xid79, excluded n1 (failover)")
        assert evidence.strip() == "NVRM: Xid 79"
        assert second.endswith("on ?: requeued_elsewhere (not counted)")
        assert "restart 2" in present
        assert present.endswith("now  on n2: Running")

    def test_says_when_failover_was_not_asked_for(self, view: Callable[..., JobView]) -> None:
        assert "failover: not asked for" in render.story(view(comment=""))

    def test_shows_the_verdicts_on_the_present_attempt(self, view: Callable[..., JobView], fault: NodeVerdict) -> None:
        assert render.story(view(fault, state="FAILED")).splitlines()[-1] == f"    xid79 on n1: {fault.text}"

    def test_a_job_that_waits_has_not_begun(self, view: Callable[..., JobView]) -> None:
        """Slurm gives a waiting job the start that it expects, and an end a time limit later."""
        present = render.story(view(state="PENDING", reason="BeginTime", nodes="", ended=9000.0)).splitlines()[-1]
        assert "waiting (BeginTime)" in present
        assert "1970" not in present.partition("waiting")[0]

    def test_an_attempt_that_ended_shows_when(self, view: Callable[..., JobView]) -> None:
        assert "now" not in render.story(view(state="FAILED")).splitlines()[-1]


@given(st.text(), st.text(), st.text())
def test_no_text_breaks_a_row(name: str, comment: str, reason: str) -> None:
    job = JobRecord(
        raw_id=1, address="1", name=name, user="u", partition="p", state="PENDING", reason=reason, nodes="", restarts=0,
        requeue=True, batch=True, exit_code=0, exit_signal=0, submitted=None, started=None, ended=None, stdout="",
        comment=comment, admin_comment=comment,
    )  # fmt: skip
    (one,) = views([job], [], Config())
    text = render.table([one], header=False)
    assert text.isprintable()
    assert render.story(one).replace("\n", "").isprintable()


class TestCommand:
    @pytest.fixture
    def slurm(self, job_record: JobRecord, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
        fake = FakeSlurm.of(job_record)
        monkeypatch.setattr(CommandLine, "of", lambda _: fake)
        monkeypatch.setattr(site, "load", Config)
        return fake

    def run(self, *arguments: str) -> int:
        parser = argparse.ArgumentParser()
        status.configure(parser)
        return status.run(parser.parse_args(arguments))

    def test_filters_go_to_squeue_as_they_are(self, slurm: FakeSlurm) -> None:
        self.run("-u", "a,b", "-t", "R", "--me", "12", "13_[1-2]")
        assert slurm.calls[0] == ("jobs", "--user=a,b", "--states=R", "--me", "--jobs=12,13_[1-2]")

    def test_a_named_job_tells_its_story(self, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.run("12") == 0
        assert "\n\njob 12 train of alice" in capsys.readouterr().out

    def test_an_unknown_named_job_is_said_to_be_unknown(self, slurm: FakeSlurm) -> None:
        slurm.job_records.clear()
        with pytest.raises(SlurmFtError, match="knows no job 99_9"):
            self.run("99_9")
        assert self.run() == 0

    def test_no_jobs_without_a_header_print_nothing(self, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
        slurm.job_records.clear()
        self.run("--noheader")
        assert capsys.readouterr().out == ""


def test_a_component_of_a_het_job_is_shown_with_its_leaders_failovers(
    job_record: JobRecord, fault: NodeVerdict
) -> None:
    leader = replace(job_record, address="12+0", state="FAILED", restarts=0)
    other = replace(leader, raw_id=13, address="12+1", comment="mine", nodes="n1")
    reason = node_record.add("", replace(fault, raw_id=13))
    shown = views([other, leader], [node("n1", "idle+drain", reason)], Config(limit=0))
    assert [(view.state, view.cause) for view in shown] == [(JobState.MAX_RETRIES_EXCEEDED, "xid79")] * 2

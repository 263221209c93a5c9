from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from fake_slurm import node
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.config import Config
from slurm_ft.failover import ledger, node_record
from slurm_ft.model import Attempt, Domain, JobState, Ledger, NodeVerdict
from slurm_ft.slurm.protocol import JobRecord
from slurm_ft.status import render
from slurm_ft.status.fields import DEFAULT
from slurm_ft.status.story import story
from slurm_ft.status.view import JobView, views

COUNTED = Attempt(0, "n1", 1000.0, 2000.0, Domain.HARDWARE, "xid79", ("n1",), counted=True, text="NVRM: Xid 79")
FAILED_OVER = {"restarts": 1, "admin_comment": ledger.write("", Ledger("r", (COUNTED,), ("n1",)))}
CANCELLED_BY_US = {
    "restarts": 1,
    "admin_comment": ledger.write("", Ledger("r", (replace(COUNTED, counted=False, bad_nodes=()),))),
}


NOW = 5000.0


def table(*views: JobView, header: bool = True) -> str:
    """As a pipe gets it."""
    return "\n".join(render.table(views, NOW, header=header).lines)


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
        assert table().split()[:5] == ["JOBID", "PARTITION", "NAME", "USER", "STATE"]
        assert len(table().split()) == len(DEFAULT)
        assert table(header=False) == ""

    def test_columns_are_aligned_and_never_empty(self, view: Callable[..., JobView]) -> None:
        text = table(view(state="RUNNING", nodes="n2", **FAILED_OVER), view(name="", comment="", reason=""))
        header, first, second = text.splitlines()
        assert first.split()[4:] == ["Running", "1:06:40", "0", "2/4", "xid79", "n1", "-", "-", "n2"]
        assert second.split()[-1] == "-"
        assert header.index("STATE") == first.index("Running")
        assert all(line == line.rstrip() for line in text.splitlines())

    def test_a_job_that_waits_shows_why(self, view: Callable[..., JobView]) -> None:
        assert table(view(state="PENDING", reason="BeginTime"), header=False).endswith("(BeginTime)")

    @pytest.mark.parametrize("field", ["name", "user", "partition", "reason", "nodes", "address"])
    def test_no_text_of_a_user_reaches_the_terminal_as_a_command(
        self, view: Callable[..., JobView], field: str
    ) -> None:
        hostile = "\x1b[2J\x07\r\n\x9b31m\u202e\udcff"
        one = view(**{field: hostile})
        for text in (table(one, header=False), story(one, NOW).replace("\n", "")):
            assert text.isprintable()

    @pytest.mark.parametrize(
        "excluded", ["!,n", "^x,y", "@all,n2", "a&b,c", "n1,\x1b(0", "(null),%", "n" * 200 + ",x", "*,?", "n1,n2!n2"]
    )
    def test_a_tag_that_a_user_forged_breaks_nobodys_status(self, view: Callable[..., JobView], excluded: str) -> None:
        one = view(comment=f"[slurm_ft n=1/3 ex={excluded}]")
        assert table(one, header=False).isprintable()
        assert story(one, NOW)

    def test_the_exclusions_of_a_forged_tag_stay_visible_as_they_are(self, view: Callable[..., JobView]) -> None:
        assert "!,n" in table(view(comment="[slurm_ft n=1/3 ex=!,n]"))


class TestResume:
    """Where the job says that it resumed."""

    def test_the_step_is_a_column(self, view: Callable[..., JobView]) -> None:
        text = table(view(state="RUNNING", comment="[slurm_ft.resume step=1200 attempt=0]"))
        header, row = text.splitlines()
        at = header.split().index("LAST_STEP")
        assert row.split()[at : at + 2] == ["1200", "-"]

    @pytest.mark.parametrize(
        "text", ["step=none attempt=0", "step=\u0661\u0662 attempt=0", "step=-1 attempt=0", "step=1"]
    )
    def test_scratch_and_nonsense_show_no_step(self, view: Callable[..., JobView], text: str) -> None:
        assert table(view(comment=f"[slurm_ft.resume {text}]"), header=False).split()[10] == "-"

    def test_the_age_of_that_checkpoint_is_a_column(self, view: Callable[..., JobView]) -> None:
        tag = "[slurm_ft.resume step=1200 attempt=0 saved=4000]"
        assert table(view(comment=tag), header=False).split()[10:12] == ["1200", "16m"]
        beyond = "[slurm_ft.resume step=1200 attempt=0 saved=99999999999]"
        assert table(view(comment=beyond), header=False).split()[11] == "-"


@given(st.text(), st.text(), st.text())
def test_no_text_breaks_a_row(name: str, comment: str, reason: str) -> None:
    job = JobRecord(
        raw_id=1, address="1", name=name, user="u", partition="p", state="PENDING", reason=reason, nodes="", restarts=0,
        requeue=True, batch=True, exit_code=0, exit_signal=0, submitted=None, started=None, ended=None, stdout="",
        comment=comment, admin_comment=comment,
    )  # fmt: skip
    (one,) = views([job], [], Config())
    text = table(one, header=False)
    assert text.isprintable()
    assert story(one, NOW).replace("\n", "").isprintable()


def test_a_component_of_a_het_job_is_shown_with_its_leaders_failovers(
    job_record: JobRecord, fault: NodeVerdict
) -> None:
    leader = replace(job_record, address="12+0", state="FAILED", restarts=0)
    other = replace(leader, raw_id=13, address="12+1", comment="mine", nodes="n1")
    reason = node_record.add("", replace(fault, raw_id=13))
    shown = views([other, leader], [node("n1", "idle+drain", reason)], Config(limit=0))
    assert [(view.state, view.cause) for view in shown] == [(JobState.MAX_RETRIES_EXCEEDED, "xid79")] * 2

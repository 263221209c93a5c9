from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft.errors import SlurmCommandError
from slurm_ft.failover import actions, comment_tag, ledger, node_record
from slurm_ft.failover.comment_tag import COMMENT_LIMIT
from slurm_ft.failover.policy import decide
from slurm_ft.failover.resume_tag import ResumeMark
from slurm_ft.model import Action, Decision, JobEnd, JobKey, Ledger, NodeAction, NodeVerdict
from slurm_ft.slurm.protocol import JobRecord, JobUpdate

KEY = JobKey(12, "12", 0)
IDLE = node("n1", "idle", "", "")


@pytest.fixture
def slurm(job_record: JobRecord) -> FakeSlurm:
    return FakeSlurm.of(job_record, IDLE, node("n2", "idle", "", ""))


@pytest.fixture
def requeue(job_end: JobEnd, fault: NodeVerdict) -> Decision:
    return decide(job_end, [fault], 0)


@pytest.fixture
def history(job_end: JobEnd, requeue: Decision) -> Ledger:
    return ledger.record(Ledger("run"), job_end, requeue)


def updates(slurm: FakeSlurm) -> list[JobUpdate]:
    return [call[2] for call in slurm.calls if call[0] == "update_job"]  # type: ignore[misc]


class TestReportFault:
    def test_a_healthy_looking_node_is_drained_with_the_verdict(self, slurm: FakeSlurm, fault: NodeVerdict) -> None:
        assert actions.report_fault(slurm, fault, NodeAction.DRAIN) == "drained n1"
        assert slurm.changes == [("drain_node", "n1", node_record.add("", fault))]

    @pytest.mark.parametrize("state", ["idle+drain", "mixed+drain", "down", "down+drain+not_responding", "idle+fail"])
    def test_the_reason_of_an_admin_is_never_overwritten(
        self, slurm: FakeSlurm, fault: NodeVerdict, state: str
    ) -> None:
        slurm.set_node("n1", state=state, reason="bad fan", comment="rack 7")
        actions.report_fault(slurm, fault, NodeAction.DRAIN)
        record = slurm.node_records["n1"]
        assert (record.states, record.reason) == (frozenset(state.split("+")), "bad fan")
        assert record.comment.startswith("rack 7 ")
        assert node_record.read(record.comment, "n1") == (fault,)

    def test_a_second_verdict_joins_the_first_in_our_own_reason(self, slurm: FakeSlurm, fault: NodeVerdict) -> None:
        other = replace(fault, raw_id=13)
        actions.report_fault(slurm, fault, NodeAction.DRAIN)
        actions.report_fault(slurm, other, NodeAction.DRAIN)
        assert node_record.read(slurm.node_records["n1"].reason, "n1") == (fault, other)

    def test_a_reason_left_on_a_node_in_service_is_kept_behind_ours(self, slurm: FakeSlurm, fault: NodeVerdict) -> None:
        slurm.set_node("n1", reason="was slow")
        actions.report_fault(slurm, fault, NodeAction.DRAIN)
        reason = slurm.node_records["n1"].reason
        assert node_record.read(reason, "n1") == (fault,)
        assert reason.endswith("before: was slow")

    @pytest.mark.parametrize("reason", ["", "slurm_ft: before"])
    def test_a_node_that_needs_no_drain_stays_in_service(
        self, slurm: FakeSlurm, fault: NodeVerdict, reason: str
    ) -> None:
        slurm.set_node("n1", reason=reason)
        assert actions.report_fault(slurm, fault, NodeAction.NONE) == "noted in the Comment of n1"
        record = slurm.node_records["n1"]
        assert (record.draining, record.reason) == (False, reason)
        assert node_record.read(record.comment, "n1") == (fault,)

    def test_a_refused_drain_is_an_error(self, slurm: FakeSlurm, fault: NodeVerdict) -> None:
        slurm.refused.add("drain_node")
        with pytest.raises(SlurmCommandError):
            actions.report_fault(slurm, fault, NodeAction.DRAIN)

    def test_a_node_that_slurm_does_not_list_is_drained_all_the_same(self, fault: NodeVerdict) -> None:
        slurm = FakeSlurm(before={})
        slurm.before["drain_node"] = lambda: slurm.node_records.update(n1=IDLE)
        actions.report_fault(slurm, fault, NodeAction.DRAIN)
        assert slurm.changes[0][:2] == ("drain_node", "n1")


class TestEraseNotes:
    def test_only_this_jobs_verdict_goes(self, slurm: FakeSlurm, fault: NodeVerdict) -> None:
        other = replace(fault, raw_id=13)
        slurm.set_node("n1", comment=node_record.add(node_record.add("rack 7", fault), other))
        actions.erase_notes(slurm, tuple(slurm.node_records.values()), 12)
        assert slurm.node_records["n1"].comment == node_record.add("rack 7", other)
        assert len(slurm.changes) == 1, "n2 has nothing to erase"


class TestApply:
    def test_requeue_comes_before_the_update(self, slurm: FakeSlurm, requeue: Decision, history: Ledger) -> None:
        done = actions.apply(slurm, KEY, requeue, history)
        assert done == actions.Done(("requeue", "exclude and record"))
        assert [call[0] for call in slurm.changes] == ["requeue", "update_job"]
        job = slurm.job_records["12"]
        assert job.comment == "team=vision [slurm_ft n=1/3 ex=n1 cause=xid79]"
        assert ledger.read(job.admin_comment) == history
        assert slurm.excluded["12"] == "n1"

    @pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED", "TIMEOUT", "FAILED", "PENDING", "RUNNING"])
    def test_a_job_that_left_completing_meanwhile_is_not_revived(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger, state: str
    ) -> None:
        slurm.set_job("12", state=state)
        done = actions.apply(slurm, KEY, requeue, history)
        assert slurm.changes == []
        assert done.steps == ()
        assert state in done.failed[0]

    @pytest.mark.parametrize("state", ["COMPLETING", "PENDING"])
    def test_a_job_that_somebody_else_requeued_meanwhile_is_excluded_and_counted_all_the_same(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger, state: str
    ) -> None:
        slurm.set_job("12", state=state, restarts=1)
        actions.apply(slurm, KEY, requeue, history)
        assert [call[0] for call in slurm.changes] == ["update_job"]

    def test_an_attempt_that_somebody_else_started_is_not_killed(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        slurm.set_job("12", state="RUNNING", restarts=1)
        assert "restarts 1" in actions.apply(slurm, KEY, requeue, history).failed[0]
        assert slurm.changes == []

    def test_a_forgotten_job_is_not_requeued(self, slurm: FakeSlurm, requeue: Decision, history: Ledger) -> None:
        slurm.job_records.clear()
        assert "forgotten" in actions.apply(slurm, KEY, requeue, history).failed[0]
        assert slurm.changes == []

    def test_a_refused_requeue_changes_nothing_else(self, slurm: FakeSlurm, requeue: Decision, history: Ledger) -> None:
        slurm.refused.add("requeue")
        done = actions.apply(slurm, KEY, requeue, history)
        assert [call[0] for call in slurm.changes] == ["requeue"]
        assert done.failed[0].startswith("requeue: ")

    def test_a_requeue_whose_answer_was_lost_is_done(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        slurm.refused.add("requeue")
        slurm.before["requeue"] = lambda: slurm.set_job("12", restarts=1)
        assert actions.apply(slurm, KEY, requeue, history).steps == ("requeue", "exclude and record")

    def test_a_node_deleted_meanwhile_costs_the_exclusion_and_not_the_count(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        slurm.refuses_update = lambda update: update.excluded_nodes is not None
        done = actions.apply(slurm, KEY, requeue, history)
        job = slurm.job_records["12"]
        assert comment_tag.read(job.comment) == comment_tag.Tag(1, 3, ("n1",), "xid79")
        assert ledger.read(job.admin_comment) == history
        assert done.steps == ("requeue",)
        assert "Invalid node name" in done.failed[0]

    def test_an_update_refused_as_a_whole_is_no_failure_when_each_part_is_taken(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        slurm.refuses_update = lambda update: update.excluded_nodes is not None and update.comment is not None
        assert actions.apply(slurm, KEY, requeue, history).failed == ()
        assert slurm.excluded["12"] == "n1"

    def test_the_users_own_exclusion_stays(self, slurm: FakeSlurm, requeue: Decision, history: Ledger) -> None:
        slurm.excluded["12"] = "n[7-9]"
        actions.apply(slurm, KEY, requeue, history)
        assert slurm.excluded["12"] == "n[1,7-9]"

    def test_a_full_comment_stays_and_the_ledger_is_written(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        slurm.set_job("12", comment="x" * COMMENT_LIMIT)
        actions.apply(slurm, KEY, requeue, history)
        job = slurm.job_records["12"]
        assert (job.comment, ledger.read(job.admin_comment)) == ("x" * COMMENT_LIMIT, history)

    def test_what_needs_no_change_is_not_asked_for_part_by_part(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        """`scontrol update` without a change fails: `No changes specified`."""
        slurm.set_job("12", comment="x" * COMMENT_LIMIT)
        slurm.refuses_update = lambda update: update.excluded_nodes is not None and update.admin_comment is not None
        assert actions.apply(slurm, KEY, requeue, history).failed == ()
        assert JobUpdate() not in updates(slurm)

    def test_a_job_that_cannot_be_counted_is_not_requeued(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        slurm.excluded["12"] = "n[1-"
        done = actions.apply(slurm, KEY, requeue, history)
        assert (done.steps, slurm.changes) == ((), [])
        assert "n[1-" in done.failed[0]

    def test_record_updates_and_never_requeues(self, slurm: FakeSlurm, requeue: Decision, history: Ledger) -> None:
        slurm.set_job("12", state="PENDING", restarts=1)
        done = actions.apply(slurm, KEY, replace(requeue, action=Action.RECORD), history)
        assert done.steps == ("exclude and record",)
        assert [call[0] for call in slurm.changes] == ["update_job"]

    def test_cancel_records_first(self, slurm: FakeSlurm, requeue: Decision, history: Ledger) -> None:
        actions.apply(slurm, KEY, replace(requeue, action=Action.CANCEL), history)
        assert [call[0] for call in slurm.changes] == ["update_job", "cancel"]

    def test_cancel_cancels_even_when_the_record_fails(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        slurm.refused.add("update_job")
        done = actions.apply(slurm, KEY, replace(requeue, action=Action.CANCEL), history)
        assert done.steps == ("cancel",)
        assert slurm.job_records["12"].state == "CANCELLED"

    def test_no_action_asks_nothing_of_slurm(self, slurm: FakeSlurm, requeue: Decision, history: Ledger) -> None:
        assert actions.apply(slurm, KEY, replace(requeue, action=Action.NONE), history) == actions.Done()
        assert slurm.calls == []


def clock(step: float) -> Callable[[], float]:
    times = iter(step * number for number in range(10_000))
    return lambda: next(times)


@pytest.fixture
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions.time, "sleep", lambda _: None)


@pytest.mark.usefixtures("_no_waiting")
class TestRelease:
    def test_waits_for_the_end_of_completing(self, slurm: FakeSlurm) -> None:
        def leave_completing() -> None:
            if sum(call[0] == "job" for call in slurm.calls) > 3:
                slurm.set_job("12", state="PENDING", restarts=1)

        slurm.before["job"] = leave_completing
        assert actions.release(slurm, KEY, 100, now=clock(1)) == "released"
        assert slurm.changes == [("update_job", "12", JobUpdate(start_now=True))]

    @pytest.mark.parametrize("state", ["CANCELLED", "RUNNING", "FAILED"])
    def test_touches_nothing_in_another_state(self, slurm: FakeSlurm, state: str) -> None:
        slurm.set_job("12", state=state)
        assert actions.release(slurm, KEY, 100, now=clock(1)) == f"nothing to release: {state}"
        assert slurm.changes == []

    def test_a_forgotten_job_ends_the_wait(self, slurm: FakeSlurm) -> None:
        slurm.job_records.clear()
        assert actions.release(slurm, KEY, 100, now=clock(1)) == "nothing to release: gone"

    def test_gives_up_in_time(self, slurm: FakeSlurm) -> None:
        assert actions.release(slurm, KEY, 10, now=clock(1)) == "still COMPLETING after 10 s"
        assert slurm.changes == []

    def test_a_controller_that_is_busy_for_a_while_is_asked_again(self, slurm: FakeSlurm) -> None:
        slurm.set_job("12", state="PENDING", restarts=1)
        slurm.refused.add("job")

        def answer() -> None:
            if len(slurm.calls) > 2:
                slurm.refused.discard("job")

        slurm.before["job"] = answer
        assert actions.release(slurm, KEY, 100, now=clock(1)) == "released"

    def test_a_controller_that_never_answers_is_named(self, slurm: FakeSlurm) -> None:
        slurm.refused.add("job")
        with pytest.raises(SlurmCommandError, match="Unable to contact"):
            actions.release(slurm, KEY, 10, now=clock(1))


def test_the_records_of_a_job_that_runs_again_are_replaced(slurm: FakeSlurm, history: Ledger) -> None:
    slurm.set_job("12", admin_comment="of another tool", comment="mine [slurm_ft]")
    actions.write_records(slurm, KEY, history, 3)
    (update,) = updates(slurm)
    assert update.admin_comment == ledger.write("of another tool", history)
    assert update.comment is not None
    assert update.comment.startswith("mine [slurm_ft n=1/3 ")
    slurm.job_records.clear()
    actions.write_records(slurm, KEY, history, 3)
    assert len(updates(slurm)) == 1


class TestNoteResume:
    MARK = ResumeMark(1200, 0, 0)

    def test_the_mark_stands_beside_the_controllers_tag(self, slurm: FakeSlurm) -> None:
        slurm.set_job("12", state="RUNNING")
        assert actions.note_resume(slurm, "12", self.MARK)
        assert updates(slurm) == [JobUpdate(comment="team=vision [slurm_ft] [slurm_ft.resume step=1200 attempt=0]")]

    def test_nothing_is_written_twice(self, slurm: FakeSlurm) -> None:
        slurm.set_job("12", state="RUNNING")
        assert actions.note_resume(slurm, "12", self.MARK)
        assert actions.note_resume(slurm, "12", self.MARK)
        assert len(updates(slurm)) == 1

    @pytest.mark.parametrize("change", [{"restarts": 1}, {"state": "COMPLETING"}])
    def test_a_late_word_on_an_attempt_that_is_over_is_not_written(
        self, slurm: FakeSlurm, change: dict[str, object]
    ) -> None:
        slurm.set_job("12", **{"state": "RUNNING", **change})
        assert not actions.note_resume(slurm, "12", self.MARK)
        assert updates(slurm) == []

    def test_the_controllers_own_write_keeps_the_mark(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        slurm.set_job("12", comment="[slurm_ft] [slurm_ft.resume step=1200 attempt=0]")
        actions.apply(slurm, KEY, requeue, history)
        assert slurm.job_records["12"].comment == (
            "[slurm_ft n=1/3 ex=n1 cause=xid79] [slurm_ft.resume step=1200 attempt=0]"
        )


class TestHetJob:
    """Two components: 12+0 leads, 12+1 is job 13 to Slurm."""

    @pytest.fixture
    def slurm(self, job_record: JobRecord) -> FakeSlurm:
        leader = replace(job_record, address="12+0")
        other = replace(job_record, raw_id=13, address="12+1", comment="mine")
        stranger = replace(job_record, raw_id=14, address="14")
        records = {job.address: job for job in (other, leader, stranger)}
        return FakeSlurm(records, {"n1": IDLE}, excluded={"12+0": "n8", "12+1": "n9"})

    def test_every_component_avoids_the_bad_node_and_keeps_its_users_own(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        actions.apply(slurm, JobKey(12, "12+0", 0), requeue, history)
        assert slurm.excluded == {"12+0": "n[1,8]", "12+1": "n[1,9]"}
        assert [slurm.job_records[job].comment for job in ("12+1", "14")] == ["mine", "team=vision [slurm_ft]"]
        assert "n=1/3" in slurm.job_records["12+0"].comment
        assert slurm.job_records["12+1"].admin_comment == ""

    def test_it_is_released_when_all_components_have_left_completing(self, slurm: FakeSlurm) -> None:
        slurm.set_job("12+0", state="PENDING", restarts=1)

        def leave_completing() -> None:
            if sum(call[0] == "jobs" for call in slurm.calls) > 2:
                slurm.set_job("12+1", state="PENDING", restarts=1)

        slurm.before["jobs"] = leave_completing
        assert actions.release(slurm, JobKey(12, "12+0", 0), 100, now=clock(1)) == "released"
        assert sum(call[0] == "jobs" for call in slurm.calls) > 2

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft.errors import SlurmCommandError, SlurmFtError
from slurm_ft.failover import actions, comment_tag, ledger, node_record
from slurm_ft.failover.comment_tag import COMMENT_LIMIT
from slurm_ft.failover.policy import decide
from slurm_ft.failover.resume_tag import ResumeMark
from slurm_ft.model import Attempt, Decision, JobEnd, JobKey, Ledger, NodeAction, NodeVerdict
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
    attempt = Attempt(0, job_end.nodes, 1.0, 2.0, requeue.domain, requeue.cause, requeue.exclude, counted=True)
    return ledger.add(Ledger("run"), attempt)


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


class TestRequeue:
    def test_a_refused_requeue_is_an_error(self, slurm: FakeSlurm) -> None:
        slurm.refused.add("requeue")
        with pytest.raises(SlurmCommandError):
            actions.requeue(slurm, KEY)

    def test_a_requeue_whose_answer_was_lost_is_done(self, slurm: FakeSlurm) -> None:
        slurm.refused.add("requeue")
        slurm.before["requeue"] = lambda: slurm.set_job("12", restarts=1)
        actions.requeue(slurm, KEY)

    def test_one_that_somebody_else_made_in_between_serves_as_well(self, slurm: FakeSlurm) -> None:
        slurm.before["requeue"] = lambda: slurm.set_job("12", restarts=1, ended=None)
        actions.requeue(slurm, KEY)
        assert slurm.job_records["12"].restarts == 1


class TestRecord:
    @pytest.fixture(autouse=True)
    def _requeued(self, slurm: FakeSlurm) -> None:
        slurm.set_job("12", restarts=1, ended=None)

    @staticmethod
    def record(slurm: FakeSlurm, decision: Decision, history: Ledger) -> str:
        return actions.record(slurm, slurm.job_records["12"], decision, history)

    def test_exclusion_count_and_ledger_are_written_at_once(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        assert self.record(slurm, requeue, history) == ""
        assert len(updates(slurm)) == 1
        job = slurm.job_records["12"]
        assert job.comment == "team=vision [slurm_ft n=1/3 ex=n1 cause=xid79]"
        assert ledger.read(job.admin_comment) == history
        assert slurm.excluded["12"] == "n1"

    def test_written_again_it_says_the_same(self, slurm: FakeSlurm, requeue: Decision, history: Ledger) -> None:
        self.record(slurm, requeue, history)
        before = slurm.job_records["12"]
        self.record(slurm, requeue, history)
        assert slurm.job_records["12"] == before

    def test_a_count_that_is_greater_by_now_stays(self, slurm: FakeSlurm, requeue: Decision, history: Ledger) -> None:
        slurm.set_job("12", comment="[slurm_ft n=2/3]")
        self.record(slurm, requeue, history)
        assert "n=2/3" in slurm.job_records["12"].comment

    def test_a_node_deleted_meanwhile_costs_the_exclusion_and_not_the_count(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        slurm.refuses_update = lambda update: update.excluded_nodes is not None
        with pytest.raises(SlurmCommandError, match="Invalid node name"):
            self.record(slurm, requeue, history)
        job = slurm.job_records["12"]
        assert comment_tag.read(job.comment) == comment_tag.Tag(1, 3, ("n1",), "xid79")
        assert ledger.read(job.admin_comment) == history

    def test_an_update_refused_as_a_whole_is_no_failure_when_each_part_is_taken(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        slurm.refuses_update = lambda update: update.excluded_nodes is not None and update.comment is not None
        self.record(slurm, requeue, history)
        assert slurm.excluded["12"] == "n1"

    def test_the_users_own_exclusion_stays(self, slurm: FakeSlurm, requeue: Decision, history: Ledger) -> None:
        slurm.excluded["12"] = "n[7-9]"
        self.record(slurm, requeue, history)
        assert slurm.excluded["12"] == "n[1,7-9]"

    def test_a_full_comment_stays_and_the_ledger_is_written(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        slurm.set_job("12", comment="x" * COMMENT_LIMIT)
        assert "no room" in self.record(slurm, requeue, history)
        job = slurm.job_records["12"]
        assert (job.comment, ledger.read(job.admin_comment)) == ("x" * COMMENT_LIMIT, history)

    def test_what_needs_no_change_is_not_asked_for_part_by_part(
        self, slurm: FakeSlurm, requeue: Decision, history: Ledger
    ) -> None:
        """`scontrol update` without a change fails: `No changes specified`."""
        slurm.set_job("12", comment="x" * COMMENT_LIMIT)
        slurm.refuses_update = lambda update: update.excluded_nodes is not None and update.admin_comment is not None
        self.record(slurm, requeue, history)
        assert JobUpdate() not in updates(slurm)

    def test_an_unreadable_nodelist_is_an_error(self, slurm: FakeSlurm, requeue: Decision, history: Ledger) -> None:
        slurm.excluded["12"] = "n[1-"
        with pytest.raises(SlurmFtError, match=r"n\[1-"):
            self.record(slurm, requeue, history)


class TestCount:
    @pytest.fixture(autouse=True)
    def _running(self, slurm: FakeSlurm) -> None:
        slurm.set_job("12", state="RUNNING", restarts=1, ended=None, admin_comment="of another tool")

    def test_ledger_and_tag_of_a_job_that_runs_again_are_written(self, slurm: FakeSlurm, history: Ledger) -> None:
        slurm.set_job("12", comment="mine [slurm_ft]")
        actions.count(slurm, slurm.job_records["12"], history, 3)
        (update,) = updates(slurm)
        assert update.admin_comment == ledger.write("of another tool", history)
        assert update.comment is not None
        assert update.comment.startswith("mine [slurm_ft n=1/3 ")

    def test_a_full_comment_is_left_alone_and_said(self, slurm: FakeSlurm, history: Ledger) -> None:
        slurm.set_job("12", comment="x" * COMMENT_LIMIT)
        assert "no room" in actions.count(slurm, slurm.job_records["12"], history, 3)
        assert ledger.read(slurm.job_records["12"].admin_comment) == history

    def test_a_restart_that_was_no_failover_leaves_the_comment_alone(self, slurm: FakeSlurm) -> None:
        assert actions.count(slurm, slurm.job_records["12"], Ledger("run"), 3) == ""
        assert slurm.job_records["12"].comment == "team=vision [slurm_ft]"


def test_verdicts_that_nobody_fetched_leave_a_nodes_comment(slurm: FakeSlurm, fault: NodeVerdict) -> None:
    now = fault.at + node_record.KEPT_FOR
    fresh = replace(fault, raw_id=13, at=now, node="n2")
    other = replace(fault, raw_id=14)
    slurm.set_node("n1", comment="rack 7 " + node_record.add(node_record.add("", fault), other))
    slurm.set_node("n2", comment="rack 8 " + node_record.add("", fresh))
    assert actions.expire_notes(slurm, slurm.nodes(), now) == []
    assert len(actions.expire_notes(slurm, slurm.nodes(), now + 1)) == 1
    assert slurm.node_records["n1"].comment == "rack 7"
    assert node_record.read(slurm.node_records["n2"].comment, "n2") == (fresh,)


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
        slurm.set_job("12", restarts=1, ended=None, comment="[slurm_ft] [slurm_ft.resume step=1200 attempt=0]")
        actions.record(slurm, slurm.job_records["12"], requeue, history)
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
        slurm.set_job("12+0", restarts=1, ended=None)
        slurm.set_job("12+1", restarts=1, ended=None)
        actions.record(slurm, slurm.job_records["12+0"], requeue, history)
        assert slurm.excluded == {"12+0": "n[1,8]", "12+1": "n[1,9]"}
        assert [slurm.job_records[job].comment for job in ("12+1", "14")] == ["mine", "team=vision [slurm_ft]"]
        assert "n=1/3" in slurm.job_records["12+0"].comment
        assert slurm.job_records["12+1"].admin_comment == ""


class TestDropRedundantExclusions:
    @pytest.fixture
    def slurm(self, job_record: JobRecord, history: Ledger) -> FakeSlurm:
        """Job 12 waits; n1 and the deleted n9 were excluded by us, n2 and n3 by its user."""
        ours = replace(history, excluded=("n1", "n9"))
        job = replace(job_record, state="PENDING", restarts=1, admin_comment=ledger.write("", ours))
        fake = FakeSlurm.of(job, node("n1", "idle+drain"), node("n2"), node("n3", "down"))
        fake.excluded["12"] = "n[1-3,9]"
        return fake

    def test_nodes_out_of_service_and_deleted_ones_go_and_the_users_own_stay(self, slurm: FakeSlurm) -> None:
        assert actions.drop_redundant_exclusions(slurm, KEY) == ("n1", "n9")
        assert slurm.excluded["12"] == "n[2-3]"
        assert actions.drop_redundant_exclusions(slurm, KEY) == (), "nothing is left to be dropped"
        assert len(slurm.changes) == 1

    def test_a_bad_node_that_is_back_in_service_stays_excluded(self, slurm: FakeSlurm) -> None:
        slurm.set_node("n1", state="idle")
        assert actions.drop_redundant_exclusions(slurm, KEY) == ("n9",)

    def test_a_job_that_has_started_is_left_alone(self, slurm: FakeSlurm) -> None:
        slurm.set_job("12", state="RUNNING")
        assert actions.drop_redundant_exclusions(slurm, KEY) == ()
        assert slurm.changes == []

"""Which job a journal's entries belong to, and how many failovers it has spent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import a_job
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.failover import comment_tag, ledger, progress
from slurm_ft.failover.comment_tag import Tag
from slurm_ft.failover.progress import Progress, Step
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Action, Attempt, Decision, Domain, JobKey, JobState, Ledger
from slurm_ft.slurm.protocol import JobRecord

KEY = JobKey(12, "12", 0)
REQUEUE = Decision(
    Action.REQUEUE, JobState.FAILOVER_IN_PROGRESS, Domain.HARDWARE, "xid79", 1, 3, "hardware_fault", "", ("n1",)
)
DECIDED = Entry(2001.0, Stage.DECIDED, KEY, "c", "run", 900.0, "act", nodes="n1", decision=REQUEUE)


def later(stage: Stage, **fields: object) -> Entry:
    return replace(DECIDED, at=2002.0, stage=stage, decision=None, **fields)  # type: ignore[arg-type]


@pytest.fixture
def requeued(job_record: JobRecord) -> JobRecord:
    """Job 12 after its failover; Slurm has renewed its submit time."""
    return replace(job_record, state="PENDING", restarts=1, submitted=2003.0, ended=None)


class TestWhichJob:
    def test_the_ledgers_run_id_names_it(self, requeued: JobRecord) -> None:
        job = replace(requeued, admin_comment=ledger.write("", Ledger("of the ledger")))
        assert progress.run_id(job, [DECIDED]) == "of the ledger"

    def test_the_same_submit_time_names_it(self, job_record: JobRecord) -> None:
        assert progress.run_id(job_record, [DECIDED]) == "run"

    def test_a_job_of_the_same_id_that_was_submitted_later_inherits_nothing(self, job_record: JobRecord) -> None:
        assert progress.run_id(replace(job_record, submitted=901.0), [DECIDED]) == ""

    def test_a_requeue_right_after_the_decision_leads_to_the_new_submit_time(self, requeued: JobRecord) -> None:
        assert progress.run_id(requeued, [DECIDED]) == "run"

    @pytest.mark.parametrize("submitted", [1990.0, 2001.0 + progress.FINDS_ITS_WAY + 1])
    def test_a_restarted_job_of_the_same_id_that_cannot_be_it_inherits_nothing(
        self, requeued: JobRecord, submitted: float
    ) -> None:
        assert progress.run_id(replace(requeued, submitted=submitted), [DECIDED]) == ""

    def test_once_released_only_the_submit_time_seen_then_names_it(self, requeued: JobRecord) -> None:
        released = [later(Stage.RELEASED, submitted=2003.0)]
        assert progress.run_id(requeued, released) == "run"
        assert progress.run_id(replace(requeued, submitted=2004.0), released) == ""

    def test_an_erased_ledger_is_restored_from_the_journal(self, requeued: JobRecord) -> None:
        history = progress.history(requeued, [DECIDED, later(Stage.RECORDED)], "run")
        assert (history.run_id, history.count, history.excluded) == ("run", 1, ("n1",))


class TestCount:
    def test_a_failover_that_the_journal_alone_knows_of_is_counted(self, requeued: JobRecord) -> None:
        job = replace(requeued, admin_comment=ledger.write("", Ledger("run")))
        assert progress.spent(job, progress.history(job, [DECIDED], "run")) == 1

    def test_a_decision_that_was_never_carried_out_is_not_counted(self, job_record: JobRecord) -> None:
        assert progress.history(job_record, [DECIDED], "run").count == 0
        assert progress.history(replace(job_record, restarts=1), [DECIDED, later(Stage.CLOSED)], "run").count == 0

    def test_what_was_only_observed_is_not_counted(self, requeued: JobRecord) -> None:
        assert progress.history(requeued, [replace(DECIDED, mode="observe")], "run").count == 0

    def test_one_attempt_in_ledger_and_journal_counts_once(self, requeued: JobRecord) -> None:
        job = replace(requeued, admin_comment=ledger.write("", ledger.add(Ledger("run"), DECIDED.attempt())))
        assert progress.spent(job, progress.history(job, [DECIDED, later(Stage.REQUEUED)], "run")) == 1

    @given(st.integers(0, 5), st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)), st.booleans())
    def test_erasing_one_of_the_three_wins_nothing(
        self, tagged: int, in_ledger: set[int], in_journal: set[int], erased: bool
    ) -> None:
        comment = comment_tag.write("mine", Tag(tagged, 9)) or ""
        attempts = tuple(
            Attempt(number, "n1", None, 1.0, Domain.HARDWARE, "x", (), counted=True) for number in in_ledger
        )
        entries = [replace(DECIDED, key=replace(KEY, attempt=number)) for number in in_journal]
        job = _job(6, "" if erased else comment, ledger.write("", Ledger("run", attempts)))
        spent = progress.spent(job, progress.history(job, entries, "run"))
        assert spent >= max(0 if erased else tagged, len(in_ledger), len(in_journal))
        assert spent == max(0 if erased else tagged, len(in_ledger | in_journal))


def _job(restarts: int, comment: str, admin_comment: str) -> JobRecord:
    return replace(
        a_job(), state="PENDING", restarts=restarts, submitted=2003.0, ended=None, comment=comment,
        admin_comment=admin_comment,
    )  # fmt: skip


class TestNextStep:
    def test_a_job_found_requeued_is_noted_before_it_is_recorded(self, requeued: JobRecord) -> None:
        assert progress.next_step(Progress(DECIDED), requeued, 2004.0).step is Step.NOTE
        noted = Progress(DECIDED, (later(Stage.REQUEUED),))
        assert progress.next_step(noted, requeued, 2004.0).step is Step.RECORD

    def test_nobody_waits_for_ever_to_exclude(self, requeued: JobRecord) -> None:
        counted = Progress(DECIDED, (later(Stage.REQUEUED), later(Stage.COUNTED)))
        runs = replace(requeued, state="RUNNING")
        assert progress.next_step(counted, runs, 2004.0).step is Step.WAIT
        assert progress.next_step(counted, runs, 2001.0 + progress.LIFETIME + 1).step is Step.CLOSE

    def test_a_begin_time_that_is_over_needs_no_release(self, requeued: JobRecord) -> None:
        recorded = Progress(DECIDED, (later(Stage.REQUEUED), later(Stage.RECORDED)))
        assert progress.next_step(recorded, requeued, 2003.0).step is Step.RELEASE
        assert progress.next_step(recorded, requeued, 2002.0 + progress.BEGIN_TIME + 1).step is Step.CLOSE

    def test_an_end_that_slurmctld_lost_is_requeued_in_the_end(self, job_record: JobRecord) -> None:
        """A saved state from before the end: the job shows RUNNING, and nothing runs."""
        decided = Progress(replace(DECIDED, started=1900.0))
        ghost = replace(job_record, state="RUNNING", started=1900.0, ended=None)
        assert progress.next_step(decided, ghost, 2004.0).step is Step.WAIT
        assert progress.next_step(decided, ghost, 2001.0 + progress.LOST_END).step is Step.REQUEUE

    def test_an_attempt_that_was_started_once_more_is_left_alone(self, job_record: JobRecord) -> None:
        decided = Progress(replace(DECIDED, started=1900.0))
        runs = replace(job_record, state="RUNNING", started=2010.0, ended=None)
        assert progress.next_step(decided, runs, 2004.0 + progress.LOST_END).step is Step.CLOSE
        unknown = Progress(replace(DECIDED, started=None))
        assert progress.next_step(unknown, runs, 2004.0 + progress.LOST_END).step is Step.WAIT

    @given(
        state=st.sampled_from(sorted(progress.FINAL | progress.PENDING | {"RUNNING", "COMPLETING", "CONFIGURING"})),
        restarts=st.integers(0, 3),
        stages=st.lists(st.sampled_from([stage for stage in Stage if stage not in (Stage.RELEASED, Stage.CLOSED)])),
        action=st.sampled_from([Action.REQUEUE, Action.RECORD, Action.CANCEL]),
        ended=st.none() | st.just(1.0),
    )
    def test_no_sequence_of_entries_makes_it_touch_a_running_attempt(
        self, state: str, restarts: int, stages: list[Stage], action: Action, ended: float | None
    ) -> None:
        decided = replace(DECIDED, decision=replace(REQUEUE, action=action))
        entries = tuple(later(stage) for stage in stages)
        job = replace(_job(restarts, "", ""), state=state, ended=ended, submitted=2003.0 if restarts else 900.0)
        step = progress.next_step(Progress(decided, entries), job, 2004.0).step
        if step is Step.REQUEUE:
            assert restarts == 0
            assert state in ("COMPLETING", "FAILED", "NODE_FAIL")
            assert action is Action.REQUEUE
        if step in (Step.CANCEL, Step.RECORD, Step.RELEASE):
            assert restarts > 0
            assert state in progress.PENDING | {"COMPLETING"}
        if step is Step.CANCEL:
            assert action is Action.CANCEL

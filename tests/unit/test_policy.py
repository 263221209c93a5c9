from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.failover import claim, ledger
from slurm_ft.failover.policy import decide
from slurm_ft.model import (
    IMAGE_PULL,
    Action,
    Attempt,
    Decision,
    Domain,
    ExitStatus,
    JobEnd,
    JobKey,
    JobState,
    Ledger,
    NodeVerdict,
)


def test_hardware_fault_is_requeued_without_the_bad_node(job_end: JobEnd, fault: NodeVerdict) -> None:
    decision = decide(job_end, [fault], 0)
    assert (decision.action, decision.exclude, decision.count) == (Action.REQUEUE, ("n1",), 1)
    assert (decision.state, decision.cause) == (JobState.FAILOVER_IN_PROGRESS, "xid79")
    assert "n1" in decision.reason
    assert "0000:3b:00" in decision.reason


def test_a_users_error_is_never_retried(job_end: JobEnd) -> None:
    decision = decide(job_end, [], 0)
    assert (decision.action, decision.state, decision.exclude) == (Action.NONE, JobState.INTERNAL_ERROR, ())
    assert (decision.domain, decision.cause) == (Domain.UNKNOWN, "exit1:0")


def test_the_third_failover_happens_and_the_fourth_does_not(job_end: JobEnd, fault: NodeVerdict) -> None:
    assert decide(job_end, [fault], 2).action is Action.REQUEUE
    fourth = decide(job_end, [fault], 3)
    assert (fourth.action, fourth.state, fourth.count) == (Action.NONE, JobState.MAX_RETRIES_EXCEEDED, 3)


def test_a_limit_of_zero_never_requeues(job_end: JobEnd, fault: NodeVerdict) -> None:
    assert decide(replace(job_end, limit=0), [fault], 0).state is JobState.MAX_RETRIES_EXCEEDED


def test_a_job_that_did_not_ask_is_left_alone(job_end: JobEnd, fault: NodeVerdict) -> None:
    decision = decide(replace(job_end, opted_in=False), [fault], 0)
    assert (decision.action, decision.state) == (Action.NONE, JobState.FAILED)


def test_no_requeue_is_obeyed_and_said(job_end: JobEnd, fault: NodeVerdict) -> None:
    decision = decide(replace(job_end, requeueable=False), [fault], 0)
    assert (decision.action, decision.state, decision.cause) == (Action.NONE, JobState.FAILED, "xid79")
    assert "--no-requeue" in decision.reason


def test_the_earliest_of_several_faults_is_the_root(job_end: JobEnd, fault: NodeVerdict) -> None:
    end = replace(job_end, nodes="n[1-3]", node_names=("n1", "n2", "n3"))
    later = replace(fault, node="n2", cause="xid74", at=fault.at + 1)
    assert decide(end, [later, fault], 0).exclude == ("n1",)


def test_when_every_node_blames_itself_none_is_blamed(job_end: JobEnd, fault: NodeVerdict) -> None:
    decision = decide(job_end, [fault, replace(fault, node="n2")], 0)
    assert (decision.action, decision.rule, decision.exclude) == (Action.NONE, "all_nodes_blamed", ())


def test_an_image_that_could_not_be_loaded_has_a_state_of_its_own(job_end: JobEnd, fault: NodeVerdict) -> None:
    image = replace(fault, domain=Domain.APPLICATION, cause=IMAGE_PULL, text="pyxis: failed to import docker image")
    decision = decide(job_end, [image], 0)
    assert (decision.action, decision.state) == (Action.NONE, JobState.IMAGE_PULL_BACKOFF)
    assert (decision.domain, decision.cause, decision.exclude) == (Domain.APPLICATION, IMAGE_PULL, ())
    assert decide(job_end, [image, fault], 0).action is Action.REQUEUE


def test_the_only_node_of_a_job_may_blame_itself(job_end: JobEnd, fault: NodeVerdict) -> None:
    end = replace(job_end, nodes="n1", node_names=("n1",))
    assert decide(end, [fault], 0).action is Action.REQUEUE


@pytest.mark.parametrize("change", [{"raw_id": 13}, {"attempt": 1}, {"node": "n9"}, {"domain": Domain.APPLICATION}])
def test_a_verdict_on_another_job_attempt_node_or_domain_is_no_evidence(
    job_end: JobEnd, fault: NodeVerdict, change: dict[str, object]
) -> None:
    assert decide(job_end, [replace(fault, **change)], 0).action is Action.NONE  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reason", "state"),
    [("TimeLimit", JobState.TIMEOUT), ("DeadLine", JobState.TIMEOUT), ("Preempted", JobState.PREEMPTED)],
)
def test_an_end_by_slurm_is_not_retried_even_with_a_fault(
    job_end: JobEnd, fault: NodeVerdict, reason: str, state: JobState
) -> None:
    decision = decide(replace(job_end, reason=reason), [fault], 0)
    assert (decision.action, decision.state) == (Action.NONE, state)


def test_a_good_end_is_not_retried_even_with_a_fault(job_end: JobEnd, fault: NodeVerdict) -> None:
    assert decide(replace(job_end, exit=ExitStatus(0, 0)), [fault], 0).action is Action.NONE


def test_a_node_failure_is_counted_without_a_second_requeue(job_end: JobEnd) -> None:
    end = replace(job_end, exit=ExitStatus(0, 0), restarts_now=1, down_nodes=("n2",))
    decision = decide(end, [], 0)
    assert (decision.action, decision.exclude, decision.count) == (Action.RECORD, ("n2",), 1)
    assert decision.cause == "node_down"


def test_a_node_failure_over_the_limit_cancels_the_requeued_job(job_end: JobEnd) -> None:
    end = replace(job_end, exit=ExitStatus(0, 0), restarts_now=1, down_nodes=("n2",))
    decision = decide(end, [], 3)
    assert (decision.action, decision.state) == (Action.CANCEL, JobState.MAX_RETRIES_EXCEEDED)


def test_a_preemption_is_neither_counted_nor_touched(job_end: JobEnd) -> None:
    decision = decide(replace(job_end, exit=ExitStatus(0, 15), restarts_now=1), [], 1)
    assert (decision.action, decision.count, decision.rule) == (Action.NONE, 1, "requeued_elsewhere")


def test_a_silent_epilog_is_named(job_end: JobEnd) -> None:
    decision = decide(replace(job_end, silent_nodes=("n2",)), [], 0)
    assert (decision.rule, decision.domain) == ("epilog_silent", Domain.UNKNOWN)
    assert "n2" in decision.reason


def test_the_count_is_the_greatest_of_all_records() -> None:
    one = Attempt(0, "n1", None, 1.0, Domain.HARDWARE, "xid79", ("n1",), counted=True)
    assert claim.spent("[slurm_ft n=2/3]", "") == 2
    assert claim.spent("[slurm_ft n=2/3]", ledger.write("", Ledger("r", (one,)))) == 2
    assert claim.spent("[slurm_ft n=0/3]", ledger.write("", Ledger("r", (one,)))) == 1
    assert claim.spent("", ledger.write("", Ledger("r"))) == 0


ends = st.builds(
    JobEnd,
    key=st.builds(JobKey, st.just(12), st.just("12"), st.integers(0, 5)),
    exit=st.builds(ExitStatus, st.integers(0, 2), st.integers(0, 15)),
    reason=st.sampled_from(["NonZeroExitCode", "TimeLimit", "None", "Preempted", ""]),
    nodes=st.just("n[1-2]"),
    node_names=st.just(("n1", "n2")),
    down_nodes=st.sampled_from([(), ("n1",), ("n1", "n2")]),
    silent_nodes=st.sampled_from([(), ("n2",)]),
    started=st.none(),
    ended=st.just(0.0),
    restarts_now=st.integers(0, 7),
    opted_in=st.booleans(),
    requeueable=st.booleans(),
    limit=st.integers(0, 3),
)
faults = st.lists(
    st.builds(
        NodeVerdict,
        node=st.sampled_from(["n1", "n2", "n3"]),
        raw_id=st.sampled_from([12, 13]),
        attempt=st.integers(0, 5),
        domain=st.sampled_from(Domain),
        cause=st.just("xid79"),
        pci=st.none(),
        at=st.floats(0, 100),
        text=st.just(""),
    )
)


@given(ends, faults, st.integers(0, 5))
def test_whatever_happens_the_limit_holds(end: JobEnd, verdicts: list[NodeVerdict], count: int) -> None:
    decision: Decision = decide(end, verdicts, count)
    if decision.action in (Action.REQUEUE, Action.RECORD):
        assert count < end.limit
        assert decision.count == count + 1
        assert decision.exclude
        assert decision.domain is Domain.HARDWARE
    else:
        assert decision.count == count
    if decision.action is Action.REQUEUE:
        assert end.opted_in
        assert end.requeueable
        assert not end.exit.success
        assert end.restarts_now <= end.key.attempt


def test_a_fault_under_another_component_of_a_het_job_counts_and_under_another_job_does_not(
    job_end: JobEnd, fault: NodeVerdict
) -> None:
    het = replace(job_end, component_ids=(12, 13))
    assert decide(het, [replace(fault, raw_id=13)], 0).action is Action.REQUEUE
    assert decide(het, [replace(fault, raw_id=14)], 0).action is Action.NONE


def test_an_expedited_job_is_requeued_by_slurm_and_recorded_by_us(job_end: JobEnd, fault: NodeVerdict) -> None:
    decision = decide(replace(job_end, expedited=True), [fault], 0)
    assert (decision.action, decision.exclude, decision.count) == (Action.RECORD, ("n1",), 1)


def test_an_expedited_job_over_the_limit_is_cancelled(job_end: JobEnd, fault: NodeVerdict) -> None:
    decision = decide(replace(job_end, expedited=True), [fault], 3)
    assert (decision.action, decision.state) == (Action.CANCEL, JobState.MAX_RETRIES_EXCEEDED)


def test_the_own_error_of_an_expedited_job_is_none_of_somebody_elses_requeues(job_end: JobEnd) -> None:
    held = replace(job_end, expedited=True, restarts_now=job_end.key.attempt + 1)
    decision = decide(held, [], 0)
    assert (decision.action, decision.state) == (Action.NONE, JobState.INTERNAL_ERROR)


def test_a_required_node_is_not_excluded_and_the_reason_says_so(job_end: JobEnd, fault: NodeVerdict) -> None:
    decision = decide(replace(job_end, required_nodes=("n1",)), [fault], 0)
    assert (decision.action, decision.exclude, decision.count) == (Action.REQUEUE, (), 1)
    assert "not excluded, since the job's --nodelist requires it: n1" in decision.reason


WELL = ExitStatus(0, 0)


@pytest.mark.parametrize(
    ("fails_job", "faulty", "action"),
    [(False, True, Action.NONE), (False, False, Action.NONE), (True, False, Action.NONE), (True, True, Action.REQUEUE)],
)
def test_a_failed_step_fails_the_job_only_where_the_site_says_so_and_hardware_is_to_blame(
    job_end: JobEnd, fault: NodeVerdict, fails_job: bool, faulty: bool, action: Action
) -> None:
    end = replace(job_end, exit=WELL, reason="", failed_step=ExitStatus(7, 0), step_fails_job=fails_job)
    decision = decide(end, [fault] if faulty else [], 0)
    assert decision.action is action
    assert decision.rule == ("hardware_fault" if action is Action.REQUEUE else "step_failed")
    assert ("7:0" in decision.reason) is (action is Action.NONE)


def test_a_time_limit_is_no_failed_step(job_end: JobEnd, fault: NodeVerdict) -> None:
    end = replace(job_end, exit=WELL, reason="TimeLimit", failed_step=ExitStatus(0, 15), step_fails_job=True)
    assert decide(end, [fault], 0).state is JobState.TIMEOUT


def test_a_start_that_a_node_refused_is_not_counted(job_end: JobEnd, fault: NodeVerdict) -> None:
    refusal = replace(fault, cause="gate:xid79")
    decision = decide(replace(job_end, exit=WELL, restarts_now=1), [refusal], 2)
    assert (decision.action, decision.rule, decision.count) == (Action.RELEASE, "refused_by_gate", 2)
    assert decision.exclude == ()


def test_a_refusal_excuses_no_failure(job_end: JobEnd, fault: NodeVerdict) -> None:
    assert decide(job_end, [replace(fault, cause="gate:xid79")], 0).action is Action.NONE


@pytest.mark.parametrize("exit_status", [ExitStatus(0, 125), ExitStatus(0, 9)])
def test_a_job_that_ran_out_of_memory_is_not_retried(job_end: JobEnd, exit_status: ExitStatus) -> None:
    """`0:125`, OUT_OF_MEMORY: as Slurm's cgroup plugin ends a job; `0:9` where the kernel killed the script alone."""
    decision = decide(replace(job_end, exit=exit_status, reason="OutOfMemory"), [], 0)
    assert (decision.action, decision.state) == (Action.NONE, JobState.INTERNAL_ERROR)

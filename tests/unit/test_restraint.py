"""What holds failover back although the hardware is at fault: brake, progress stop, switched-off rules, back-off."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest

from slurm_ft.classify import rules
from slurm_ft.config import SWITCHABLE, Config
from slurm_ft.failover import backoff, claim, policy
from slurm_ft.failover.policy import decide
from slurm_ft.failover.restraint import fruitless, saved_of, step_of
from slurm_ft.model import Action, Attempt, Domain, JobEnd, JobState, Ledger, NodeVerdict, Restraints
from slurm_ft.slurm.protocol import JobRecord


def test_while_the_brake_is_on_nothing_is_requeued_excluded_or_counted(job_end: JobEnd, fault: NodeVerdict) -> None:
    held = replace(job_end, restraints=Restraints(brake="failover is paused (root)"))
    decision = decide(held, [fault], 1)
    assert (decision.action, decision.rule, decision.exclude, decision.count) == (Action.NONE, "held_back", (), 1)
    assert decision.state is JobState.INTERNAL_ERROR
    assert "failover is paused (root)" in decision.reason
    assert decide(replace(held, restarts_now=1), [fault], 1).action is Action.NONE
    assert decide(held, [], 1).rule == "no_hardware_signal", "a user's error stays one"


def stuck(job_end: JobEnd, attempts: int, stop: int = 3) -> JobEnd:
    return replace(job_end, step=40, restraints=Restraints(fruitless=attempts, progress_stop=stop))


def test_a_job_that_makes_no_progress_is_ended(job_end: JobEnd, fault: NodeVerdict) -> None:
    end = replace(job_end, limit=9)
    assert decide(stuck(end, 2), [fault], 2).action is Action.REQUEUE
    decision = decide(stuck(end, 3), [fault], 3)
    assert (decision.action, decision.rule, decision.exclude) == (Action.NONE, "no_progress", ())
    assert decision.state is JobState.MAX_RETRIES_EXCEEDED
    assert "3 failovers in a row brought no checkpoint: started from step 40" in decision.reason
    assert decide(stuck(end, 9, stop=0), [fault], 3).action is Action.REQUEUE


def test_a_job_without_progress_that_slurm_has_requeued_is_cancelled(job_end: JobEnd) -> None:
    end = replace(stuck(job_end, 3), restarts_now=1, down_nodes=("n1",), limit=9)
    assert decide(end, [], 3).action is Action.CANCEL


def attempt(number: int, step: int | None, *, counted: bool = True) -> Attempt:
    return Attempt(number, "n1", None, 0.0, Domain.HARDWARE, "xid79", ("n1",), counted, step=step)


@pytest.mark.parametrize(
    ("attempts", "step", "row"),
    [
        ((), 10, 0),
        (((0, -1), (1, 10), (2, 10)), 10, 2),
        (((0, -1), (1, -1)), -1, 2),
        (((0, 10), (1, 10)), 20, 0),
        (((0, 10), (1, None)), 10, 0),
        (((0, 10), (1, 10)), None, 0),
        (((0, 30), (1, 30)), 10, 2),  # went back: a newer checkpoint was broken
    ],
)
def test_how_many_failovers_brought_no_newer_checkpoint(
    attempts: tuple[tuple[int, int | None], ...], step: int | None, row: int
) -> None:
    history = Ledger("run", tuple(attempt(number, at) for number, at in attempts))
    assert fruitless(history, step) == row


def test_a_preempted_attempt_neither_counts_nor_ends_the_row() -> None:
    history = Ledger("run", (attempt(0, 10), attempt(1, None, counted=False), attempt(2, 10)))
    assert fruitless(history, 10) == 2


def test_the_step_is_that_of_this_very_attempt() -> None:
    comment = "[slurm_ft] [slurm_ft.resume step=1200 attempt=2]"
    assert (step_of(comment, 2), step_of(comment, 3), step_of("[slurm_ft]", 0)) == (1200, None, None)
    assert step_of("[slurm_ft.resume step=none attempt=0]", 0) == -1
    dated = "[slurm_ft.resume step=1200 attempt=2 saved=1764429940]"
    assert (saved_of(dated, 2), saved_of(dated, 3), saved_of(comment, 2)) == (1764429940, None, None)


@pytest.mark.parametrize("rule", ["hardware_fault", "requeued_by_slurm"])
def test_a_rule_that_is_switched_off_acts_no_more_and_says_so(job_end: JobEnd, fault: NodeVerdict, rule: str) -> None:
    end = replace(job_end, restarts_now=int(rule == "requeued_by_slurm"))
    assert decide(end, [fault], 0).rule == rule
    decision = decide(replace(end, restraints=Restraints(rules_off=frozenset({rule}))), [fault], 0)
    assert (decision.action, decision.rule, decision.exclude, decision.count) == (Action.NONE, "rule_off", (), 0)
    assert rule in decision.reason


def test_every_rule_that_can_be_switched_off_exists() -> None:
    source = inspect.getsource(policy) + inspect.getsource(rules)
    assert all(f'"{rule}"' in source for rule in SWITCHABLE)


def test_jobs_of_other_partitions_do_not_fail_over(job_record: JobRecord) -> None:
    assert claim.opted_in(job_record, Config())
    assert claim.opted_in(job_record, Config(partitions=("main",)))
    assert not claim.opted_in(job_record, Config(partitions=("gpu",)))
    assert claim.opted_in(replace(job_record, partition="spot,gpu"), Config(partitions=("gpu",)))


def test_the_pause_grows_with_the_failovers() -> None:
    config = Config(backoff=(0, 30, 120))
    assert [backoff.pause(config, number) for number in (1, 2, 3, 4, 9)] == [0, 30, 120, 120, 120]

"""The simulation behind the ETTR table: its arithmetic where the answer is known, and that it asks the real policy."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from ettr.policies import NoFailover, SlurmFt
from ettr.training import Training
from ettr.world import DAY, Assumptions

ASSUMED = Assumptions()
NEVER = 1e12


def train(limit: int | None, **changes: float):
    assumptions, random = replace(ASSUMED, **changes), Random(1)
    policy = NoFailover(assumptions, random) if limit is None else SlurmFt(assumptions, random, limit)
    return Training(1024, 7 * DAY, policy, assumptions, random).run()


def test_without_faults_only_the_start_and_the_checkpoints_cost_time():
    outcome = train(3, mttf_at_1024=NEVER, bug_every=NEVER)
    checkpoints = 7 * DAY / ASSUMED.checkpoint_interval * ASSUMED.checkpoint_cost
    assert outcome.wall == pytest.approx(7 * DAY + ASSUMED.restart + checkpoints)
    assert outcome.chains == [True]


def test_with_verdicts_always_right_and_no_limit_in_reach_no_human_is_needed():
    outcome = train(999, missed=0.0, bug_every=NEVER)
    assert outcome.faults > 10
    assert outcome.chains == [True]


def test_a_limit_of_three_ends_the_chain_at_the_fourth_fault():
    outcome = train(3, missed=0.0, bug_every=NEVER)
    assert len(outcome.chains) == outcome.faults // 4 + 1


def test_a_missed_verdict_costs_a_human():
    assert train(999, missed=1.0, down_share=0.0, bug_every=NEVER).ettr < 0.95


def test_a_false_alarm_drains_a_healthy_node():
    assert train(999, false_alarm=1.0, mttf_at_1024=NEVER).wrongly_drained > 0


def test_failover_beats_waiting_for_a_human():
    assert train(3).ettr > train(None).ettr

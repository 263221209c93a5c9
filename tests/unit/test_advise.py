from __future__ import annotations

import math
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.advise import observed
from slurm_ft.advise.cadence import Costs, best_interval, lost_share, steps_for
from slurm_ft.cli.advise import Question, advice
from slurm_ft.doctor import canary
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Action, Decision, Domain, JobKey, JobState

HOUR = 3600.0


def test_youngs_rule_is_the_limit_of_cheap_saves() -> None:
    costs = Costs(save=1.0, restart=0.0, mtbf=1000 * HOUR)
    assert best_interval(costs) == pytest.approx(math.sqrt(2 * costs.save * costs.mtbf), rel=1e-3)


def test_dalys_own_example() -> None:
    """The paper's figure: a 24 h mean time between failures and saves of 5 minutes give an interval of about 1.9 h."""
    assert best_interval(Costs(save=300.0, restart=600.0, mtbf=24 * HOUR)) / HOUR == pytest.approx(1.94, abs=0.05)


def test_a_save_longer_than_the_time_between_failures_is_not_made_more_often_than_they_come() -> None:
    assert best_interval(Costs(save=10 * HOUR, restart=0.0, mtbf=HOUR)) == HOUR


@given(st.floats(1, 600), st.floats(1, 2000), st.floats(0.3, 0.95) | st.floats(1.05, 3))
def test_no_other_interval_loses_less(save: float, hours: float, factor: float) -> None:
    costs = Costs(save, 300.0, hours * HOUR)
    if costs.save * 20 > costs.mtbf:  # the formula is an approximation for saves much shorter than the time between
        return
    best = best_interval(costs)
    assert lost_share(best, costs) <= lost_share(best * factor, costs) + 1e-4


def test_a_cluster_that_always_fails_loses_everything() -> None:
    assert lost_share(1e6, Costs(1.0, 1.0, 1.0)) == 1.0
    assert 0 < lost_share(600, Costs(1.0, 1.0, 1e9)) < 0.01


def test_steps_are_at_least_one() -> None:
    assert (steps_for(100, 30), steps_for(1, 30)) == (3, 1)


class TestFailureRate:
    NOW = 1000 * HOUR

    def entry(self, hour: float, *exclude: str, domain: Domain = Domain.HARDWARE) -> Entry:
        decision = Decision(Action.REQUEUE, JobState.RUNNING, domain, "xid79", 1, 3, "rule", "reason", exclude, "text")
        return Entry(hour * HOUR, Stage.DECIDED, JobKey(1, "1", 0), decision=decision)

    def test_a_canary_is_no_failure(self) -> None:
        real = self.entry(0, "n1")
        assert real.decision is not None
        made_up = replace(real.decision, text=canary.LINE.format(pci="0000:3b:00", name="slurm_ft canary 82f31fbd"))
        entries = [real, replace(self.entry(5, "n2"), decision=made_up)]
        rate = observed.failure_rate(entries, 10, now=100 * HOUR)
        assert rate is not None
        assert "1 node failures in" in rate.source

    def test_counts_the_nodes_that_were_blamed(self) -> None:
        entries = [
            self.entry(0, "n1"),
            self.entry(10, "n1", "n2"),
            self.entry(20, domain=Domain.APPLICATION),
            replace(self.entry(5, "n3"), stage=Stage.RECORDED),
        ]
        rate = observed.failure_rate(entries, 30, self.NOW)
        assert rate is not None
        assert rate.node_hours == pytest.approx(30 * 1000 / 3)
        assert "3 node failures in 41.7 days on 30 nodes" in rate.source

    def test_without_a_failure_the_bound_is_said_to_be_one(self) -> None:
        rate = observed.failure_rate([self.entry(0, domain=Domain.UNKNOWN)], 30, self.NOW)
        assert rate is not None
        assert rate.node_hours == pytest.approx(30 * 1000 / 3)
        assert "upper bound" in rate.source

    @pytest.mark.parametrize("nodes", [1, 3, 100])
    @pytest.mark.parametrize("hours", [0.0, 10, 1000])
    def test_no_failure_is_never_worse_than_what_is_published(self, nodes: int, hours: float) -> None:
        rate = observed.failure_rate([self.entry(0, domain=Domain.APPLICATION)], nodes, hours * HOUR)
        assert rate is not None
        assert rate.node_hours == max(observed.PUBLISHED_NODE_HOURS, nodes * hours / 3)

    def test_one_failure_in_a_young_journal_is_chance(self) -> None:
        rate = observed.failure_rate([self.entry(0, "n1")], 3, 2 * HOUR)
        assert rate is not None
        assert rate.node_hours == observed.PUBLISHED_NODE_HOURS
        assert "1 node failures in 0.1 days on 3 nodes (journal) is too little to go by" in rate.source

    def test_many_failures_tell_however_young_the_journal_is(self) -> None:
        rate = observed.failure_rate([self.entry(0, "n1"), self.entry(1, "n2"), self.entry(2, "n1")], 3, 10 * HOUR)
        assert rate is not None
        assert rate.node_hours == pytest.approx(10)

    def test_an_empty_journal_shows_nothing(self) -> None:
        assert observed.failure_rate([], 3, self.NOW) is None
        assert observed.failure_rate([self.entry(0, "n1")], 0, self.NOW) is None


@pytest.mark.parametrize(("save", "noted"), [(60.0, False), (3 * HOUR, True)])
def test_an_interval_shorter_than_the_save_is_pointed_out(save: float, noted: bool) -> None:
    rate = observed.published_rate()
    lines = advice(Question(Costs(save, 300.0, HOUR), rate, 1000, None, None, measured=False))
    assert any("shorter than the save" in line for line in lines) is noted


def test_saves_are_measured_by_the_times_of_their_files(tmp_path) -> None:
    checkpoints = []
    for index, step in enumerate((100, 200, 300)):
        path = tmp_path / f"checkpoint-{step}"
        path.mkdir()
        for name, at in (("model", 1000 * index), ("optimizer", 1000 * index + 20)):
            (path / name).write_text("x")
            os.utime(path / name, (5e8 + at, 5e8 + at))
        checkpoints.append((step, path))
    found = observed.saves(checkpoints)
    assert found == observed.Saves(count=3, write_seconds=20.0, step_seconds=10.0, interval_steps=100)


def test_a_single_file_shows_no_write_time(tmp_path) -> None:
    (tmp_path / "ckpt_1.pth").write_text("x")
    assert observed.saves([(1, tmp_path / "ckpt_1.pth")]) == observed.Saves(1, None, None, None)
    assert observed.saves([]) == observed.Saves(0, None, None, None)

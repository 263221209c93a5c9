"""How often `auto` saves, and how the engine chooses to copy: both from what saves are measured to cost."""

from __future__ import annotations

import random

import pytest
from small_training import save

from slurm_ft.vendor.datastates._engine import cadence, engine
from slurm_ft.vendor.datastates._engine.cadence import FIRST_AUTO, Cadence
from slurm_ft.vendor.datastates._engine.pace import TRIES, Pace
from slurm_ft.vendor.datastates._engine.ranks import SingleRank
from slurm_ft.vendor.datastates._engine.settings import parse


class Clock:
    """In the place of time.monotonic."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Rank(SingleRank):
    """One of two ranks; the other one's answer is given."""

    world_size = 2

    def __init__(self, rank: int, other: int) -> None:
        self.rank, self._other = rank, other

    def minimum(self, value: int) -> int:
        return min(value, self._other)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(cadence, "time", made)
    return made


@pytest.mark.parametrize("percent", [0.5, 1.0, 5.0])
def test_auto_stays_within_its_overhead_and_uses_it(clock: Clock, percent: float) -> None:
    """A day of steps of a second; a save adds 0.4 s to 1.2 s to them, and is durable after 7 s."""
    dice, when = random.Random(1), Cadence(parse({"save_steps": "auto", "max_overhead": percent}), SingleRank())
    costs: list[float] = []
    for step in range(1, 86_400):
        clock.now += 1.0
        cost = (costs[-1] if costs else None, 7.0 if costs else None)
        if when.due(step, None, cost):
            when.saved()
            costs.append(dice.uniform(0.4, 1.2))
            clock.now += costs[-1]
    overhead = 100 * sum(costs) / (clock.now - 1000.0)
    assert percent * 0.8 < overhead <= percent * 1.05


def test_auto_saves_no_faster_than_the_disk_takes_it(clock: Clock) -> None:
    when = Cadence(parse({"save_steps": "auto"}), SingleRank())
    when.saved()
    clock.now += 59.0
    assert not when.due(1, None, (0.001, 60.0))
    clock.now += 1.0
    assert when.due(2, None, (0.001, 60.0))


def test_auto_measures_first(clock: Clock) -> None:
    when = Cadence(parse({"save_steps": "auto"}), SingleRank())
    clock.now += FIRST_AUTO - 1
    assert not when.due(1, None, (None, None))
    clock.now += 1
    assert when.due(2, None, (None, None))


@pytest.mark.parametrize(("rank", "other", "due"), [(0, 1, True), (1, 0, False), (1, 1, True)])
def test_rank_zeros_clock_decides(clock: Clock, rank: int, other: int, due: bool) -> None:
    """Rank 1 never says no, whatever its own clock shows, and does not save alone."""
    when = Cadence(parse({"save_seconds": 10.0}), Rank(rank, other))
    clock.now += 11.0 if rank == 0 else 0.0
    assert when.due(1, None, (None, None)) is due


def timed(pace: Pace, *, lazy: bool, slow_steps: tuple[float, ...], now: float) -> float:
    """Take three undisturbed steps of a second, save, and take slower steps, the last of which ends the save."""
    for _ in range(3):
        now += 1.0
        pace.step(now, saving=False)
    pace.begin(lazy=lazy)
    for number, seconds in enumerate(slow_steps, start=1):
        now += seconds
        pace.step(now, saving=number < len(slow_steps))
    return now


@pytest.mark.parametrize(("lazy_seconds", "eager_seconds"), [(0.2, 0.5), (4.0, 0.5)])
def test_the_way_that_adds_less_to_the_steps_is_kept(lazy_seconds: float, eager_seconds: float) -> None:
    """NVIDIA NeMo Automodel 3131: copying late made the steps ten times as long there, although the call was short."""
    pace, now, tried = Pace(), 0.0, []
    for _ in range(2 * TRIES):
        lazy = pace.prefer_lazy()
        tried.append(lazy)
        added = lazy_seconds if lazy else eager_seconds
        now = timed(pace, lazy=lazy, slow_steps=(1.0 + added / 2, 1.0 + added / 2), now=now)
    assert sorted(tried) == [False] * TRIES + [True] * TRIES
    assert pace.prefer_lazy() is (lazy_seconds < eager_seconds)
    assert pace.added == pytest.approx(min(lazy_seconds, eager_seconds))


def test_a_way_that_has_become_the_dearer_one_is_left() -> None:
    pace, now = Pace(), 0.0
    for _ in range(TRIES):
        now = timed(pace, lazy=True, slow_steps=(1.1, 1.1), now=now)
        now = timed(pace, lazy=False, slow_steps=(1.3, 1.3), now=now)
    assert pace.prefer_lazy()
    for _ in range(5):
        now = timed(pace, lazy=True, slow_steps=(3.0, 3.0), now=now)
    assert not pace.prefer_lazy()


def test_the_engine_tries_both_and_then_copies_as_measured(training, make_engine, monkeypatch) -> None:
    """A real engine, with a clock under which every lazy save looks expensive."""
    made = make_engine(copy="auto")
    clock = Clock()
    monkeypatch.setattr("slurm_ft.vendor.datastates._engine.fence.time", clock)
    monkeypatch.setattr(engine.Engine, "_saving", lambda _: False)
    ways = []
    for _ in range(2 * TRIES + 3):
        for _ in range(2):
            clock.now += 1.0
            training.step()
        save(made, training)
        assert made.wait(20)
        ways.append(made.status.lazy)
        clock.now += 5.0 if made.status.lazy else 1.5
        training.step()
    assert sorted(ways[: 2 * TRIES]) == [False] * TRIES + [True] * TRIES
    assert ways[2 * TRIES :] == [False] * 3

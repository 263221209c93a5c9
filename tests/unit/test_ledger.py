from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.failover import ledger
from slurm_ft.model import Attempt, Domain, Ledger

attempts = st.builds(
    Attempt,
    number=st.integers(0, 1000),
    nodes=st.text(),
    started=st.none() | st.floats(0, 4e9),
    ended=st.floats(0, 4e9).map(lambda value: round(value, 3)),
    domain=st.sampled_from(Domain),
    cause=st.text(),
    bad_nodes=st.lists(st.text()).map(tuple),
    counted=st.booleans(),
    text=st.text(),
    step=st.none() | st.integers(-1, 10**18),
    saved=st.none() | st.integers(0, 10**11),
)
ledgers = st.builds(
    Ledger, st.text(), st.lists(attempts, max_size=4).map(tuple), st.lists(st.text(), max_size=4).map(tuple)
)


@given(ledgers, st.text(), st.text())
def test_round_trips_and_keeps_foreign_text(history: Ledger, before: str, after: str) -> None:
    if "slurm_ft:{" in before:
        return
    written = ledger.write(before, history) + after
    assert ledger.read(written) == history
    rewritten = ledger.write(written, replace(history, run_id="again"))
    assert rewritten.startswith(before)
    assert rewritten.endswith(after)


@given(st.text())
def test_no_text_crashes_the_reader(text: str) -> None:
    assert ledger.read(text) is None or "slurm_ft:" in text


@pytest.mark.parametrize(
    "text",
    [
        "slurm_ft:{",
        "slurm_ft:[]",
        'slurm_ft:{"v":1}',
        'slurm_ft:{"run":1,"excluded":2,"attempts":[]}',
        'slurm_ft:{"run":"","excluded":[],"attempts":[1]}',
        'slurm_ft:{"run":"","excluded":[],"attempts":[{"no":Infinity}]}',
    ],
)
def test_a_damaged_ledger_is_foreign_text(text: str) -> None:
    assert ledger.read(text) is None
    written = ledger.write(text, Ledger("r"))
    assert written.startswith(f"{text} ")
    assert ledger.read(written) == Ledger("r")


FAILOVER = Attempt(0, "n1", 1.0, 2.0, Domain.HARDWARE, "xid79", ("n1",), counted=True)


def test_a_requeue_is_counted_once_however_often_it_is_recorded() -> None:
    once = ledger.add(Ledger("r"), FAILOVER)
    assert ledger.add(once, FAILOVER) == once
    assert (once.count, once.excluded) == (1, ("n1",))


def test_a_restart_that_turns_out_to_be_a_failover_is_counted_in_its_place() -> None:
    unexplained = replace(FAILOVER, counted=False, bad_nodes=(), domain=Domain.UNKNOWN)
    history = ledger.add(ledger.add(Ledger("r"), unexplained), FAILOVER)
    assert history == Ledger("r", (FAILOVER,), ("n1",))
    assert ledger.add(history, unexplained) == history


def test_attempts_stand_in_their_order_whenever_they_were_entered() -> None:
    history = ledger.add(ledger.add(Ledger("r"), replace(FAILOVER, number=1)), FAILOVER)
    assert [attempt.number for attempt in history.attempts] == [0, 1]


def test_uncounted_attempts_drop_out_first() -> None:
    history = Ledger("r")
    for number in range(200):
        history = ledger.add(history, replace(FAILOVER, number=number, counted=number < 3))
    assert len(history.attempts) == ledger.ATTEMPTS_KEPT
    assert history.count == 3

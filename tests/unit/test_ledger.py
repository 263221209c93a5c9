from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.failover import ledger
from slurm_ft.failover.policy import decide
from slurm_ft.model import Attempt, Domain, JobEnd, JobKey, Ledger, NodeVerdict

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


def test_a_requeue_is_counted_once_however_often_it_is_recorded(job_end: JobEnd, fault: NodeVerdict) -> None:
    decision = decide(job_end, [fault], 0)
    once = ledger.record(Ledger("r"), job_end, decision)
    twice = ledger.record(once, job_end, decision)
    assert once == twice
    assert (once.count, once.excluded) == (1, ("n1",))


def test_uncounted_attempts_drop_out_first(job_end: JobEnd, fault: NodeVerdict) -> None:
    history = Ledger("r")
    for number in range(200):
        end = replace(job_end, key=JobKey(12, "12", number))
        verdicts = [replace(fault, attempt=number)] if number < 3 else []
        history = ledger.record(history, end, decide(end, verdicts, 0))
    assert len(history.attempts) == ledger.ATTEMPTS_KEPT
    assert history.count == 3

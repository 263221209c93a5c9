"""`slurm-ft nodes`: drained nodes, what NVIDIA says, repeat offenders."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_slurm import node

from slurm_ft.classify.advice import asked
from slurm_ft.failover import node_record
from slurm_ft.failover.policy import decide
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import JobEnd, NodeVerdict
from slurm_ft.status import fleet


@pytest.fixture
def decided(job_end: JobEnd, fault: NodeVerdict) -> Entry:
    return Entry(2001.0, Stage.DECIDED, job_end.key, "c", "run", mode="act", decision=decide(job_end, [fault], 0))


def test_a_node_that_we_drained_shows_why_and_what_nvidia_says(fault: NodeVerdict) -> None:
    nodes = [node("n1", "idle+drain", node_record.add("", fault)), node("n2", "down+drain", "bad fan"), node("n3")]
    (view,) = fleet.views(nodes, [], 0)
    assert (view.node.name, view.drained, view.repeats) == ("n1", True, False)
    row = fleet.table([view]).splitlines()[1].split()
    assert (row[0], row[1], *row[3:]) == (
        "n1",
        "drain+idle",
        "xid79",
        "0000:3b:00",
        "12.0",
        "RESTART_BM",
        "1",
        "1",
        "-",
    )


def test_a_returned_node_that_fails_again_within_the_window_is_marked(fault: NodeVerdict, decided: Entry) -> None:
    again = replace(fault, raw_id=15, at=2500.0)
    nodes = [node("n1", "idle+drain", node_record.add("", again)), node("n2")]
    (view,) = fleet.views(nodes, [decided], since=2000)
    assert (view.repeats, len(view.faults), view.jobs) == (True, 2, 2)
    assert fleet.table([view]).endswith("2       2     repeat offender")
    (later,) = fleet.views(nodes, [decided], since=2002)
    assert not later.repeats


def test_one_fault_that_reason_and_journal_tell_of_is_one(fault: NodeVerdict, decided: Entry) -> None:
    (view,) = fleet.views([node("n1", "idle+drain", node_record.add("", fault))], [decided], 0)
    assert len(view.faults) == 1


def test_a_repeat_offender_is_listed_though_it_is_in_service(decided: Entry) -> None:
    later = replace(decided, key=replace(decided.key, attempt=1))
    (view,) = fleet.views([node("n1"), node("n2")], [decided, later], 0)
    assert (view.node.name, view.drained, view.repeats, view.jobs) == ("n1", False, True, 1)


@pytest.mark.parametrize(
    ("cause", "action"),
    [
        ("xid79", "RESTART_BM"),
        ("gate:xid79", "RESTART_BM"),
        ("xid31_repeated", "RESTART_APP"),
        ("sxid20034", ""),
        ("x", ""),
    ],
)
def test_what_nvidia_says_to_do(cause: str, action: str) -> None:
    assert asked(cause) == action

"""The brake: what puts it on, where it stands, and what it holds back."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft.config import Config, Mode
from slurm_ft.failover import actions, brake, node_record
from slurm_ft.failover.brake import Brake, Kind
from slurm_ft.log import open_log
from slurm_ft.model import NodeAction, NodeVerdict
from slurm_ft.node.report import Reporter, report
from slurm_ft.slurm.protocol import NodeRecord

NOW = 2000.5
BOUND = Config(breaker_nodes=2, breaker_percent=0, breaker_window=100)


def drained(fault: NodeVerdict, name: str, ago: float = 0.0, **fields: object) -> NodeRecord:
    verdict = replace(fault, node=name, at=NOW - ago, **fields)  # type: ignore[arg-type]
    return node(name, "idle+drain", node_record.add("", verdict))


def test_one_drain_too_many_trips_it(fault: NodeVerdict) -> None:
    nodes = [drained(fault, "n1"), node("n2"), node("n3")]
    assert brake.tripped(nodes, ("n2",), BOUND, NOW) is None
    tripped = brake.tripped([*nodes, drained(fault, "n4")], ("n2",), BOUND, NOW)
    assert tripped == Brake(Kind.BREAKER, NOW, "3 of 4 nodes drained within 100 s, 2 are allowed")


def test_old_drains_of_others_and_of_links_alone_do_not_count(fault: NodeVerdict) -> None:
    nodes = [
        drained(fault, "n1", ago=101),
        node("n2", "idle+drain", "bad fan"),
        drained(fault, "n3", at_link=True),
        replace(drained(fault, "n4"), states=frozenset({"idle"})),  # returned to service; 24.11 keeps the Reason
    ]
    assert brake.tripped(nodes, ("n5", "n6"), BOUND, NOW) is None


def test_a_share_of_the_nodes_never_forbids_the_first_few() -> None:
    share = Config(breaker_nodes=0, breaker_percent=10)
    small, large = [node(f"n{k}") for k in range(4)], [node(f"n{k}") for k in range(100)]
    assert brake.tripped(small, ("n0", "n1", "n2"), share, NOW) is None
    assert brake.tripped(small, ("n0", "n1", "n2", "n3"), share, NOW) is not None
    assert brake.tripped(large, [f"n{k}" for k in range(10)], share, NOW) is None
    assert brake.tripped(large, [f"n{k}" for k in range(11)], share, NOW) is not None


def test_without_a_bound_it_never_trips() -> None:
    names = [f"n{k}" for k in range(100)]
    assert brake.tripped([node(name) for name in names], names, Config(breaker_nodes=0, breaker_percent=0), NOW) is None


def test_the_mark_stands_beside_all_other_text_and_is_found_by_everybody(fault: NodeVerdict) -> None:
    comment = node_record.add("rack 7 [site]", fault)
    marked = brake.write(comment, Brake(Kind.PAUSED, NOW, "root: new\ndriver [x]"))
    assert marked == f"[slurm_ft.brake paused 2000: root: new?driver ?x?] {comment}"
    assert node_record.read(marked, "n1") == node_record.read(comment, "n1")
    assert brake.in_force([node("n1"), node("n2", comment=marked)]) == Brake(Kind.PAUSED, 2000, "root: new?driver ?x?")
    off = brake.write(marked, Brake(Kind.OFF, NOW + 9, "root"))
    assert off == f"[slurm_ft.brake off 2010: root] {comment}"
    assert brake.in_force([node("n2", comment=off)]) is None


def test_the_newest_mark_counts_where_an_older_one_was_left_behind() -> None:
    on, off = Brake(Kind.BREAKER, 100, "many"), Brake(Kind.OFF, 200, "root")
    nodes = [node("n1", comment=brake.write("", on)), node("n2", comment=brake.write("", off))]
    assert brake.in_force(nodes) is None
    assert brake.in_force([nodes[0]]) == on


def test_after_it_was_taken_off_it_counts_anew(fault: NodeVerdict) -> None:
    off = brake.write("", Brake(Kind.OFF, NOW - 10, "root"))
    nodes = [drained(fault, "n1", ago=20), drained(fault, "n2", ago=20), node("n3", comment=off), node("n4")]
    assert brake.tripped(nodes, ("n4",), BOUND, NOW) is None


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm(node_records={name: node(name) for name in ("n1", "n2", "n3", "n4", "n5")})


def reporter(slurm: FakeSlurm, tmp_path: Path, **fields: object) -> Reporter:
    config = Config(mode=Mode.ACT, log_file=tmp_path / "log", **fields)  # type: ignore[arg-type]
    return Reporter(slurm, config, open_log(config, "test"))


def test_a_paused_cluster_drains_nothing_and_loses_no_verdict(
    slurm: FakeSlurm, fault: NodeVerdict, tmp_path: Path
) -> None:
    actions.put_on_brake(slurm, slurm.nodes(), Brake(Kind.PAUSED, NOW, "root"))
    assert [call[1] for call in slurm.changes] == ["n1", "n2", "n3"]
    assert report(reporter(slurm, tmp_path), fault, NodeAction.DRAIN) is NodeAction.NONE
    found = slurm.node_records["n1"]
    assert not found.draining
    assert [verdict.cause for verdict in node_record.read(found.comment, "n1")] == ["xid79"]
    assert brake.in_force(slurm.nodes()), "the mark is still there"


def test_the_node_whose_drain_is_one_too_many_stays_and_puts_the_brake_on(
    slurm: FakeSlurm, fault: NodeVerdict, tmp_path: Path
) -> None:
    site, now = reporter(slurm, tmp_path, breaker_nodes=2, breaker_percent=0, breaker_window=60), time.time()
    acts = [report(site, replace(fault, node=name, at=now), NodeAction.DRAIN) for name in ("n1", "n2", "n3", "n4")]
    assert acts == [NodeAction.DRAIN, NodeAction.DRAIN, NodeAction.NONE, NodeAction.NONE]
    held = brake.in_force(slurm.nodes())
    assert held is not None
    assert held.why == "3 of 5 nodes drained within 60 s, 2 are allowed"
    assert (tmp_path / "log").read_text().count("ALERT") == 1


def test_a_node_of_a_partition_without_failover_is_not_drained(
    slurm: FakeSlurm, fault: NodeVerdict, tmp_path: Path, job_record: object
) -> None:
    slurm.job_records["12"] = job_record  # type: ignore[assignment]
    assert report(reporter(slurm, tmp_path, partitions=("gpu",)), fault, NodeAction.DRAIN) is NodeAction.NONE
    assert report(reporter(slurm, tmp_path, partitions=("main",)), fault, NodeAction.DRAIN) is NodeAction.DRAIN


def test_one_refused_carrier_does_not_keep_the_brake_from_the_others(slurm: FakeSlurm) -> None:
    calls = iter([True, False, False])
    slurm.before["set_node_comment"] = lambda: (
        slurm.refused.add("set_node_comment") if next(calls) else slurm.refused.clear()
    )
    actions.put_on_brake(slurm, slurm.nodes(), Brake(Kind.PAUSED, NOW, "root"))
    assert brake.in_force(slurm.nodes()) is not None

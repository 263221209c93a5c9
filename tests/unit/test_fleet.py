"""`slurm-ft nodes`: drained nodes, what NVIDIA says, repeat offenders."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from fake_slurm import node

from slurm_ft.classify.advice import WORDS, asked, in_words
from slurm_ft.classify.catalogue import XIDS
from slurm_ft.classify.codes import xid_facts
from slurm_ft.doctor import canary
from slurm_ft.failover import node_record
from slurm_ft.failover.policy import decide
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import JobEnd, NodeVerdict
from slurm_ft.status import fleet
from slurm_ft.status.table import Screen


@pytest.fixture
def decided(job_end: JobEnd, fault: NodeVerdict) -> Entry:
    return Entry(2001.0, Stage.DECIDED, job_end.key, "c", "run", mode="act", decision=decide(job_end, [fault], 0))


def test_a_node_that_we_drained_shows_why_and_what_nvidia_says(fault: NodeVerdict) -> None:
    nodes = [node("n1", "idle+drain", node_record.add("", fault)), node("n2", "down+drain", "bad fan"), node("n3")]
    (view,) = fleet.views(nodes, [], 0)
    assert (view.node.name, view.drained, view.repeats) == ("n1", True, False)
    header, row = fleet.table([view]).lines
    cells = dict(zip(header.split(), re.split(r"  +", row), strict=True))
    assert (cells["NODE"], cells["STATE"], cells["CAUSE"], cells["JOB"]) == ("n1", "drain+idle", "xid79", "12.0")
    assert (cells["GPU"], cells["NVIDIA_SAYS"]) == ("0000:3b:00", "reboot the node (RESTART_BM)")
    assert (cells["FAULTS"], cells["JOBS"], cells["NOTE"], cells["GPU_UUID"]) == ("1", "1", "-", "-")


def test_since_is_when_it_was_drained_and_not_its_last_fault(fault: NodeVerdict) -> None:
    reason = node_record.add(node_record.add("", fault), replace(fault, raw_id=13, at=9000.0))
    (view,) = fleet.views([node("n1", "idle+drain", reason)], [], 0)
    assert (view.since, view.faults[-1].at) == (fault.at, 9000.0)


def test_the_gpus_uuid_is_there_where_nvml_named_it(fault: NodeVerdict) -> None:
    uuid = "GPU-5b4a1c2e-0f3d-4c6b-9a8e-7d6f5e4c3b2a"
    told = replace(fault, cause="row_remap_failure", text=f"NVML: GPU 0000:3b:00 ({uuid}): row remapping failed")
    (view,) = fleet.views([node("n1", "idle+drain", node_record.add("", told))], [], 0)
    assert fleet.table([view]).lines[1].endswith(uuid)
    assert "GPU_UUID" in fleet.table([view], Screen(100)).dropped


def test_a_returned_node_that_fails_again_within_the_window_is_marked(fault: NodeVerdict, decided: Entry) -> None:
    again = replace(fault, raw_id=15, at=2500.0)
    nodes = [node("n1", "idle+drain", node_record.add("", again)), node("n2")]
    (view,) = fleet.views(nodes, [decided], since=2000)
    assert (view.repeats, len(view.faults), view.jobs) == (True, 2, 2)
    assert re.search(r" 2 +2 +repeat offender ", fleet.table([view]).lines[1])
    (later,) = fleet.views(nodes, [decided], since=2002)
    assert not later.repeats


def test_a_canary_is_no_fault_of_its_node(fault: NodeVerdict, decided: Entry) -> None:
    line = canary.LINE.format(pci="0000:3b:00", name="slurm_ft canary 82f31fbd")
    (told,) = node_record.in_reason(node_record.add("", replace(fault, raw_id=15, text=line)), "n1")  # cut as there
    assert decided.decision is not None
    journaled = replace(decided, decision=replace(decided.decision, text=told.text))
    (view,) = fleet.views([node("n1", "idle+drain", node_record.add("", told))], [journaled], 0)
    assert (view.drained, view.faults) == (True, ())
    assert fleet.table([view]).lines[1].startswith("n1 ")
    assert fleet.views([node("n1")], [journaled, replace(journaled, key=replace(decided.key, attempt=1))], 0) == []


def test_a_users_process_name_makes_no_canary(fault: NodeVerdict) -> None:
    text = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=(slurm_ft canary, GPU has fallen off the bus."
    (view,) = fleet.views([node("n1", "idle+drain", node_record.add("", replace(fault, text=text)))], [], 0)
    assert len(view.faults) == 1


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


def test_every_action_of_the_catalogue_has_plain_words_or_is_a_name_for_a_flow_chart() -> None:
    actions = {facts.immediate for code in XIDS if (facts := xid_facts(code)) and facts.immediate}
    assert in_words("RESET_GPU") == "reset the GPU (RESET_GPU)"
    assert in_words("XID_154") == "XID_154"
    alone = {action for action in actions if action not in WORDS}
    assert all(name.startswith(("WORKFLOW_", "XID_", "CHECK_UVM")) for name in alone)

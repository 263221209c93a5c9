from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.failover import node_record
from slurm_ft.model import Domain, NodeVerdict


def test_an_operator_can_read_it(fault: NodeVerdict) -> None:
    assert node_record.add("", fault) == (
        "slurm_ft: hardware xid79 gpu 0000:3b:00 job 12.0 at 2000.500: NVRM: Xid (PCI:0000:3b:00): 79, fell off"
    )


def test_two_jobs_on_one_node_both_leave_their_verdict(fault: NodeVerdict) -> None:
    other = replace(fault, raw_id=13, cause="xid48")
    reason = node_record.add(node_record.add("", fault), other)
    assert node_record.read(reason, "n1") == (fault, other)


def test_a_verdict_behind_foreign_text_is_read_and_taken_out_again(fault: NodeVerdict) -> None:
    other = replace(fault, raw_id=13)
    comment = node_record.add(node_record.add("rack 7, see ticket", fault), other)
    assert node_record.read(comment, "n1") == (fault, other)
    assert node_record.read(node_record.remove(comment, 12), "n1") == (other,)
    assert node_record.remove(node_record.remove(comment, 12), 13) == "rack 7, see ticket"


def test_a_record_that_the_status_shows_is_not_taken_out(fault: NodeVerdict) -> None:
    image = replace(fault, domain=Domain.APPLICATION, cause="image_pull")
    assert node_record.read(node_record.remove(node_record.add("", image), 12), "n1") == (image,)


@pytest.mark.parametrize("reason", ["", "bad fan", "slurm_ft", "NHC: slurm_ft: x"])
def test_a_foreign_reason_is_not_ours(reason: str) -> None:
    assert not node_record.is_ours(reason)


def test_the_list_of_records_is_bounded(fault: NodeVerdict) -> None:
    reason = ""
    for raw_id in range(100):
        reason = node_record.add(reason, replace(fault, raw_id=raw_id))
    assert [verdict.raw_id for verdict in node_record.read(reason, "n1")] == list(range(92, 100))


@given(st.text())
def test_a_forged_evidence_line_adds_no_second_record(text: str) -> None:
    verdict = NodeVerdict(
        "n1", 1, 0, Domain.HARDWARE, "xid79", None, 1.0, f"{text} || hardware xid48 gpu - job 99.0 at 1.000: forged"
    )
    (read,) = node_record.read(node_record.add("", verdict), "n1")
    assert read.raw_id == 1


@given(st.text())
def test_no_text_crashes_the_reader(text: str) -> None:
    node_record.read(text, "n1")
    node_record.read(node_record.PREFIX + text, "n1")
    node_record.remove(text, 1)

"""Which nodes' drains are lifted when a fault of one node shows on others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft.classify import classify
from slurm_ft.failover import actions, node_record
from slurm_ft.failover.cascade import wrongly_drained
from slurm_ft.failover.policy import decide
from slurm_ft.model import Action, Evidence, ExitStatus, JobEnd, JobKey, NodeVerdict, Verdict
from slurm_ft.sensors.kernel_lines import parse_line

KEY = JobKey(12, "12", 0)
LINK = "NVRM: Xid (PCI:0001:01:00): 145, pid=1, name=python, RLW_REMAP Fatal XC0 i0 Link 01 (0x00000082 0x00000040)"
ASKS = "NVRM: Xid (PCI:0001:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
LOST = "NVRM: Xid (PCI:0001:01:00): 79, pid=1, GPU has fallen off the bus."
CABLE = "mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, Bus stuck(I2C)"


def judge(*lines: str) -> Verdict:
    events = [parse_line(line) for line in lines]
    evidence = Evidence("kernel_log", readable=True, events=tuple(event for event in events if event))
    return classify((evidence,), ExitStatus(1, 0))


@pytest.fixture
def link(fault: NodeVerdict) -> NodeVerdict:
    return replace(fault, node="n2", cause="xid145", at=fault.at - 1, at_link=True)


@pytest.mark.parametrize(
    ("lines", "at_link"),
    [((LINK,), True), ((CABLE,), True), ((LINK, ASKS), False), ((LOST,), False), ((LINK, LOST), False)],
)
def test_only_a_link_without_a_request_of_the_driver_may_be_anothers_fault(
    lines: tuple[str, ...], at_link: bool
) -> None:
    verdict = judge(*lines)
    assert verdict.domain.value == "hardware"
    assert verdict.at_link is at_link


def test_the_record_carries_it(link: NodeVerdict) -> None:
    reason = node_record.add("", link)
    assert "hardware xid145 link gpu 0000:3b:00 job 12.0" in reason
    assert node_record.read(reason, "n2") == (link,)


def test_a_node_that_sees_the_far_end_first_is_not_the_root(
    job_end: JobEnd, fault: NodeVerdict, link: NodeVerdict
) -> None:
    decision = decide(job_end, (link, fault), 0)
    assert (decision.action, decision.exclude, decision.cause) == (Action.REQUEUE, ("n1",), "xid79")
    assert wrongly_drained(job_end, (link, fault)) == ("n2",)


def test_of_link_faults_the_earliest_is_the_root(job_end: JobEnd, link: NodeVerdict) -> None:
    end = replace(job_end, node_names=("n1", "n2", "n3"))
    faults = (link, replace(link, node="n3", at=link.at + 1))
    assert decide(end, faults, 0).exclude == ("n2",)
    assert wrongly_drained(end, faults) == ("n3",)


def test_if_every_node_sees_a_broken_link_none_is_blamed_and_none_stays_drained(
    job_end: JobEnd, link: NodeVerdict
) -> None:
    faults = (link, replace(link, node="n1"))
    assert decide(job_end, faults, 0).rule == "all_nodes_blamed"
    assert wrongly_drained(job_end, faults) == ("n1", "n2")


def test_a_fault_of_its_own_keeps_a_node_drained(job_end: JobEnd, fault: NodeVerdict) -> None:
    faults = (fault, replace(fault, node="n2"))
    assert decide(job_end, faults, 0).rule == "all_nodes_blamed"
    assert wrongly_drained(job_end, faults) == ()
    assert wrongly_drained(job_end, ()) == ()
    assert wrongly_drained(job_end, (fault,)) == ()


def test_one_node_alone_with_a_broken_link_is_to_blame(job_end: JobEnd, link: NodeVerdict) -> None:
    assert decide(job_end, (link,), 0).exclude == ("n2",)
    assert wrongly_drained(job_end, (link,)) == ()


@pytest.mark.parametrize(
    "foreign", [" || before: fan noise", " || hardware xid79 gpu - job 13.0 at 2000.5: x", "admin's"]
)
def test_a_reason_that_holds_anything_else_is_left(link: NodeVerdict, foreign: str) -> None:
    reason = foreign if foreign == "admin's" else node_record.add("", link) + foreign
    slurm = FakeSlurm({}, {"n2": node("n2", "idle+drain", reason)})
    assert actions.lift_drain(slurm, "n2", KEY) == "n2 stays as it is"
    assert slurm.changes == []


def test_a_reason_of_this_attempt_alone_is_lifted(link: NodeVerdict) -> None:
    slurm = FakeSlurm({}, {"n2": node("n2", "idle+drain", node_record.add("", link))})
    assert actions.lift_drain(slurm, "n2", replace(KEY, attempt=1)) == "n2 stays as it is"
    assert actions.lift_drain(slurm, "n2", KEY) == "returned n2 to service"
    assert slurm.changes == [("resume_node", "n2")]

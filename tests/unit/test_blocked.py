"""Why a job cannot start, in one line; and what the controller does about it after a requeue."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft.controller import settle
from slurm_ft.failover import blocked, ledger
from slurm_ft.model import JobKey, Ledger
from slurm_ft.slurm.protocol import JobRecord

KEY = JobKey(12, "12", 0)
DOWN = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
LOG = logging.getLogger("test")


@pytest.fixture
def job(job_record: JobRecord) -> JobRecord:
    return replace(job_record, state="PENDING", reason=DOWN, restarts=1)


@pytest.mark.parametrize(
    ("state", "reason", "is_blocked"),
    [
        ("PENDING", DOWN, True),
        ("PENDING", "BadConstraints", True),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1", True),
        ("PENDING", "ReservationDeleted", True),
        ("PENDING", "Resources", False),
        ("PENDING", "Priority", False),
        ("PENDING", "BeginTime", False),
        ("PENDING", "JobHeldUser", False),
        ("RUNNING", "BadConstraints", False),
    ],
)
def test_a_job_that_only_waits_its_turn_is_not_blocked(
    job: JobRecord, state: str, reason: str, is_blocked: bool
) -> None:
    assert blocked.is_blocked(replace(job, state=state, reason=reason)) is is_blocked


def test_the_line_names_what_is_missing(job: JobRecord) -> None:
    nodes = [node("n1", "idle+drain", "slurm_ft: x"), node("n2")]
    assert "partition main has not the nodes it needs" in blocked.why(job, nodes, ["n1"])
    assert "out of service: n1, excluded after a fault: n1" in blocked.why(job, nodes, ["n1"])
    assert "requires n1, out of service (slurm_ft: x)" in blocked.why(replace(job, required_nodes="n1"), nodes, ())
    assert "reservation r has not" in blocked.why(replace(job, reservation="r"), nodes, ())
    assert blocked.why(replace(job, reason="Priority"), nodes, ()) == ""


def test_exclusions_are_dropped_before_the_job_is_called_blocked(job: JobRecord) -> None:
    history = ledger.write("", Ledger("r", (), ("n1",)))
    slurm = FakeSlurm.of(replace(job, admin_comment=history), node("n1", "idle+drain"))
    slurm.excluded["12"] = "n1"
    assert settle.settle(slurm, KEY, LOG).startswith("cannot start: partition main")
    assert slurm.excluded["12"] == ""


@pytest.mark.parametrize("state", ["RUNNING", "CANCELLED", "COMPLETED"])
def test_a_job_that_has_started_or_ended_is_not_watched(job: JobRecord, state: str) -> None:
    slurm = FakeSlurm.of(replace(job, state=state))
    assert settle.settle(slurm, KEY, LOG) == ""
    assert slurm.changes == []


def test_a_silent_controller_costs_the_explanation_alone(job: JobRecord) -> None:
    slurm = FakeSlurm.of(job)
    slurm.refused.add("job")
    assert settle.settle(slurm, KEY, LOG) == ""

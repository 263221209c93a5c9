"""Why a job cannot start, in one line; and what the controller does about it after a requeue."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft import journal
from slurm_ft.config import Config
from slurm_ft.controller import settle
from slurm_ft.controller.site import Site
from slurm_ft.failover import blocked, ledger
from slurm_ft.failover.progress import Progress
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Action, Decision, Domain, JobKey, JobState, Ledger
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


def settled(slurm: FakeSlurm, state_dir: Path) -> list[str]:
    """What the journal says of the job after the look."""
    decision = Decision(Action.REQUEUE, JobState.FAILOVER_IN_PROGRESS, Domain.HARDWARE, "xid79", 1, 3, "r", "why")
    decided = Entry(1.0, Stage.DECIDED, KEY, run="r", decision=decision)
    settle.settle(Site(Config(state_dir=state_dir), slurm, LOG, ""), Progress(decided))
    return [entry.detail for entry in journal.entries(state_dir) if entry.stage is Stage.BLOCKED]


def test_exclusions_are_dropped_before_the_job_is_called_blocked(job: JobRecord, tmp_path: Path) -> None:
    history = ledger.write("", Ledger("r", (), ("n1",)))
    slurm = FakeSlurm.of(replace(job, admin_comment=history), node("n1", "idle+drain"))
    slurm.excluded["12"] = "n1"
    assert settled(slurm, tmp_path)[0].startswith("cannot start: partition main")
    assert slurm.excluded["12"] == ""


@pytest.mark.parametrize("state", ["RUNNING", "CANCELLED", "COMPLETED"])
def test_a_job_that_has_started_or_ended_is_not_watched(job: JobRecord, state: str, tmp_path: Path) -> None:
    slurm = FakeSlurm.of(replace(job, state=state))
    assert settled(slurm, tmp_path) == []
    assert slurm.changes == []


def test_a_silent_controller_costs_the_explanation_alone(job: JobRecord, tmp_path: Path) -> None:
    slurm = FakeSlurm.of(job)
    slurm.refused.add("job")
    assert settled(slurm, tmp_path) == []

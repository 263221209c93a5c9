"""Jobs that no node is left for: all excluded or out of service, required by name, reserved, deleted."""

from __future__ import annotations

import pwd
import time
from typing import TYPE_CHECKING

import pytest
from steps import ENDED, OPTED_IN, end, entries, lose_gpu, make_healthy, rows, running, status, submit

from slurm_ft.journal_entry import Stage
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.model import JobState
from slurm_ft.status.story import story

if TYPE_CHECKING:
    from collections.abc import Iterator

PAIR = ("PartitionName=pair Nodes=n[1-2]",)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(nodes=3, slurm_conf=PAIR)) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    """Every test begins with idle nodes and leaves no job behind."""
    yield
    make_healthy(lab)


def blocked(lab: Lab, job: int) -> str:
    """Why the job cannot start, as the controller has found out; the status says the same."""

    def reasons() -> list[str]:
        return [entry["detail"] for entry in entries(lab, job, Stage.BLOCKED)]

    lab.wait_for(reasons, 40, "the explanation")
    shown = status(lab, job)
    assert shown.state is JobState.FAILOVER_IN_PROGRESS
    assert "(no node left: " in rows(shown)[1]
    assert f"next: {shown.blocked}" in story(shown, time.time())
    assert shown.blocked.startswith("cannot start: ")
    return reasons()[-1]


def test_when_the_last_node_of_the_partition_is_drained_the_job_says_so_and_starts_when_one_returns(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--partition=pair", "--nodes=2")
    bad = lose_gpu(lab, job, 0)
    why = blocked(lab, job)
    assert "partition pair has not the nodes it needs" in why
    assert f"out of service: {bad}" in why
    assert lab.job(job)["exc_nodes"] == "", "excluded, Slurm would not look at the job again"
    assert f"ex={bad}" in lab.job(job)["comment"]
    lab.run("scontrol", "update", f"NodeName={bad}", "State=RESUME")
    running(lab, job, 1)
    end(lab, job, 1, 0)
    assert lab.wait_job(job, *ENDED)["state"] == "COMPLETED"


def test_the_users_own_exclusions_stay_when_ours_are_dropped(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--partition=pair", "--exclude=n2")
    assert lose_gpu(lab, job, 0) == "n1"
    blocked(lab, job)
    assert lab.job(job)["exc_nodes"] == "n2"


def test_a_node_that_the_job_requires_is_not_excluded_and_the_job_waits_for_its_return(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--nodelist=n2")
    assert lose_gpu(lab, job, 0) == "n2"
    why = blocked(lab, job)
    assert "its --nodelist requires n2, out of service (slurm_ft: hardware xid79" in why
    found = lab.job(job)
    assert (found["exc_nodes"], found["comment"]) == ("", "[slurm_ft n=1/3 cause=xid79]")
    lab.run("scontrol", "update", "NodeName=n2", "State=RESUME")
    assert running(lab, job, 1) == "n2"


def test_a_job_in_a_reservation_whose_only_node_is_bad_says_so(lab: Lab) -> None:
    uid = pwd.getpwnam(lab.spec.user).pw_uid  # not every release knows `nobody` by name
    lab.run(
        "scontrol", "create", "reservation", "ReservationName=class", f"Users={uid}", "Nodes=n3",
        "StartTime=now", "Duration=60", "Flags=IGNORE_JOBS",
    )  # fmt: skip
    try:
        job = submit(lab, *OPTED_IN, "--reservation=class")
        assert lose_gpu(lab, job, 0) == "n3"
        assert "reservation class has not the nodes it needs" in blocked(lab, job)
        lab.run("scontrol", "update", "NodeName=n3", "State=RESUME")
        assert running(lab, job, 1) == "n3"
    finally:
        lab.run("scancel", str(job))
        lab.wait_job(job, *ENDED)
        lab.run("scontrol", "delete", "ReservationName=class")

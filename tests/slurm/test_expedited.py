"""`--requeue=expedite` (Slurm 25.11 and later): our verdict is the Epilog's exit code, we add what Slurm lacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from steps import ATTEMPT, OPTED_IN, cancel_all, decisions, end, lose_gpu, make_healthy, running, status

from slurm_ft.lab import Lab, LabSpec
from slurm_ft.model import JobState
from slurm_ft.slurm import fields

EXPEDITED = tuple("--requeue=expedite" if option == "--requeue" else option for option in OPTED_IN)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    spec = LabSpec(slurm_conf=("SlurmctldParameters=enable_expedited_requeue",))
    with Lab(spec) as lab:
        if not fields.EXPEDITED.on(lab.slurm.version):
            pytest.skip("this Slurm has no expedited requeue")
        yield lab


@pytest.fixture(autouse=True)
def _fresh(lab: Lab) -> Iterator[None]:
    yield
    cancel_all(lab)
    make_healthy(lab)


def submit(lab: Lab, *options: str) -> int:
    return lab.sbatch(ATTEMPT, *EXPEDITED, *options)


def test_a_hardware_fault_is_requeued_by_slurm_and_counted_excluded_and_recorded_by_us(lab: Lab) -> None:
    job = submit(lab)
    node = lose_gpu(lab, job, 0)
    assert running(lab, job, 1) != node
    lab.wait_for(lambda: "n=1/3" in lab.job(job)["comment"], 20, "the count")
    state, reason, _ = lab.node(node)
    assert state == "drained"
    assert reason.startswith("slurm_ft: hardware xid79")
    assert f'"excluded":["{node}"]' in lab.job(job)["admin_comment"]
    assert (decisions(lab, job)[0]["action"], decisions(lab, job)[0]["rule"]) == ("record", "expedited")


def test_the_users_own_error_is_held_by_slurm_and_shown_as_internalerror(lab: Lab) -> None:
    job = submit(lab)
    running(lab, job, 0)
    end(lab, job, 0, 1)
    lab.wait_job(job, "REQUEUE_HOLD")
    lab.wait_for(lambda: decisions(lab, job), 20, "the decision")
    assert status(lab, job).state is JobState.INTERNAL_ERROR
    assert lab.job(job)["comment"] == "[slurm_ft]"


def test_the_limit_holds(lab: Lab) -> None:
    job = submit(lab, "--comment=[slurm_ft limit=1]")
    first = lose_gpu(lab, job, 0)
    lab.wait_for(lambda: "n=1/1" in lab.job(job)["comment"], 30, "the count")
    second = lose_gpu(lab, job, 1)
    assert second != first
    lab.wait_job(job, "CANCELLED")
    assert [line.split()[0] for line in (lab.shared / f"started.{job}").read_text().splitlines()] == ["0", "1"]
    assert status(lab, job).state is JobState.MAX_RETRIES_EXCEEDED


def test_the_exclusion_reaches_slurm_at_the_next_failover(lab: Lab) -> None:
    job = submit(lab)
    first = lose_gpu(lab, job, 0)
    lab.wait_for(lambda: "n=1/3" in lab.job(job)["comment"], 20, "the count")
    second = lose_gpu(lab, job, 1)
    running(lab, job, 2)
    lab.wait_for(lambda: "n=2/3" in lab.job(job)["comment"], 20, "the count")
    assert f'"excluded":["{first}","{second}"]' in lab.job(job)["admin_comment"]

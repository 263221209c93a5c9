"""Endings that are no failover: time limit, deadline, scancel, an admin's hand while the decision is under way."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from steps import ENDED, FELL_OFF, OPTED_IN, decisions, end, lose_gpu, make_healthy, running, settings, status, submit

from slurm_ft import journal
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.model import JobState

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SLOW = "#!/bin/sh\nwhile [ -e {flag} ]; do /bin/sleep 0.1; done\nexec {hook}\n"


@pytest.fixture(scope="module")
def flag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file is there, node epilogs do not end, and the decision waits for them."""
    return tmp_path_factory.mktemp("slow") / "wait"


@pytest.fixture(scope="module")
def lab(flag: Path) -> Iterator[Lab]:
    epilog = flag.with_name("epilog")
    epilog.write_text(SLOW.format(flag=flag, hook=ROOT / "epilog/node_epilog"))
    epilog.chmod(0o755)
    with Lab(LabSpec(nodes=3, hooks={"epilog": epilog})) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def healthy(lab: Lab, flag: Path) -> Iterator[None]:
    """Every test begins with idle nodes and leaves no job behind."""
    yield
    flag.unlink(missing_ok=True)
    make_healthy(lab)


def lose_gpu_and_hold_the_decision(lab: Lab, flag: Path) -> tuple[int, str]:
    job = submit(lab, *OPTED_IN)
    flag.touch()
    bad = lose_gpu(lab, job, 0)
    lab.wait_for(lambda: journal.entries(settings(lab).state_dir, job), 20, "the hook's note of the end")
    return job, bad


def test_a_time_limit_is_not_retried_even_on_a_broken_gpu(lab: Lab) -> None:
    """Slurm looks at time limits every thirty seconds."""
    job = submit(lab, *OPTED_IN)
    bad = running(lab, job, 0)
    lab.inject_xid(bad, 0, 79, FELL_OFF)
    lab.run("scontrol", "update", f"JobId={job}", "EndTime=now+1")
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"], done["comment"]) == ("TIMEOUT", "0", "[slurm_ft]")
    assert status(lab, job).state is JobState.TIMEOUT
    lab.wait_node(bad, "drained")


def test_a_cancelled_job_that_waits_for_its_restart_stays_cancelled(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--nodelist=n1")
    lose_gpu(lab, job, 0)
    lab.wait_job(job, "PENDING")
    lab.run("scancel", str(job), user=lab.spec.user)
    time.sleep(2)
    done = lab.job(job)
    assert (done["state"], done["restarts"]) == ("CANCELLED", "1")
    assert status(lab, job).state is JobState.CANCELLED


def test_a_job_whose_deadline_passes_while_it_waits_for_its_restart_is_timed_out(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--nodelist=n1", "--time=1")
    lose_gpu(lab, job, 0)
    lab.wait_job(job, "PENDING")
    lab.run("scontrol", "update", f"JobId={job}", "Deadline=now+2")
    lab.wait_job(job, "DEADLINE")
    assert status(lab, job).state is JobState.TIMEOUT


def test_an_admin_who_requeues_during_the_decision_and_holds_the_job_is_obeyed(lab: Lab, flag: Path) -> None:
    job, bad = lose_gpu_and_hold_the_decision(lab, flag)
    lab.run("scontrol", "requeuehold", str(job))
    flag.unlink()
    lab.wait_for(lambda: lab.job(job)["state"] == "PENDING" and "n=1/3" in lab.job(job)["comment"], 30, "the record")
    time.sleep(2)
    found = lab.job(job)
    assert (found["state"], found["restarts"], found["exc_nodes"]) == ("PENDING", "1", bad), "requeued once, and held"
    assert "held" in found["reason"].lower()
    lab.run("scontrol", "release", str(job))
    assert running(lab, job, 1) != bad


def test_a_node_failure_over_the_limit_cancels_the_job_that_slurm_requeued_and_says_why(lab: Lab) -> None:
    job = submit(lab, "--comment=[slurm_ft limit=0]", *OPTED_IN[1:])
    bad = running(lab, job, 0)
    lab.run("scontrol", "update", f"NodeName={bad}", "State=DOWN", "Reason=power")
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"]) == ("CANCELLED", "1")
    assert status(lab, job).state is JobState.MAX_RETRIES_EXCEEDED
    (decision,) = decisions(lab, job)
    assert (decision["rule"], decision["action"]) == ("limit_reached", "cancel")


def test_a_dead_batch_host_without_requeue_is_a_failure_that_names_the_node(lab: Lab) -> None:
    job = submit(lab, OPTED_IN[0], "--no-requeue", *OPTED_IN[2:])
    bad = running(lab, job, 0)
    lab.run("scontrol", "update", f"NodeName={bad}", "State=DOWN", "Reason=power")
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"]) == ("NODE_FAIL", "0")
    shown = status(lab, job)
    assert (shown.state, shown.cause) == (JobState.FAILED, "node_down (not requeueable)")


def test_a_dependent_of_a_job_that_failed_for_good_never_runs(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    after = lab.sbatch("#!/bin/sh\n", f"--dependency=afterok:{job}", "--output=/dev/null")
    running(lab, job, 0)
    end(lab, job, 0, 1)
    lab.wait_job(job, "FAILED")
    lab.wait_for(lambda: lab.job(after)["reason"] == "DependencyNeverSatisfied", 20)

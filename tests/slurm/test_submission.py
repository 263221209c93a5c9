"""The plugins at submission: what a job that asks for failover is given, and what its user is told."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from steps import ATTEMPT, cancel_all, lose_gpu, running

from slurm_ft.lab import Lab, LabSpec

PLUGINS = Path(__file__).parents[2] / "plugins"
TAGGED = ("--comment=keep this [slurm_ft]", "--gres=gpu:1", "--output=%j.log")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(slurm_conf=("JobRequeue=0",))) as lab:
        lab.stop_controller()
        for name in ("job_submit.lua", "cli_filter.lua"):
            shutil.copy(PLUGINS / name, lab.slurm_conf.with_name(name))
        with lab.slurm_conf.open("a") as conf:
            conf.write("JobSubmitPlugins=lua\nCliFilterPlugins=lua\n")
        lab.start_controller()
        yield lab


@pytest.fixture(autouse=True)
def _no_jobs_left(lab: Lab) -> Iterator[None]:
    yield
    cancel_all(lab)


def submit(lab: Lab, *options: str, program: str = "sbatch") -> tuple[int, str]:
    """Submit as the lab's user; returns the job and what the user was told."""
    script = lab.shared / "attempt.sh"
    script.write_text(ATTEMPT)
    command = [str(lab.slurm.bin / program), *options, *(("--parsable",) if program == "sbatch" else ()), str(script)]
    done = subprocess.run(
        command, env=lab.environment(lab.spec.user), cwd=lab.shared, user=lab.spec.user,
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return int(done.stdout.strip() or 0), done.stderr


def test_a_job_that_asks_for_failover_gets_requeue_and_keeps_its_output(lab: Lab) -> None:
    job, told = submit(lab, *TAGGED)
    assert "--requeue added" in told
    assert "--open-mode=append added" in told
    node = lose_gpu(lab, job, 0)
    assert running(lab, job, 1) != node
    output = (lab.shared / f"{job}.log").read_text()
    assert f"attempt 0 on {node}" in output
    assert "attempt 1 on" in output


def test_a_job_without_the_tag_is_not_touched(lab: Lab) -> None:
    job, told = submit(lab, "--comment=slurm_ft is not for me", "--output=%j.log")
    assert told == ""
    assert lab.run("squeue", "-h", "-j", str(job), "-O", "Requeue:.10").strip() == "0"


def test_the_user_of_no_requeue_is_told_that_it_rules_failover_out(lab: Lab) -> None:
    job, told = submit(lab, *TAGGED, "--no-requeue")
    assert "--no-requeue forbids it" in told
    assert lab.run("squeue", "-h", "-j", str(job), "-O", "Requeue:.10").strip() == "0"


def test_the_user_of_truncate_is_warned_and_gets_it(lab: Lab) -> None:
    _, told = submit(lab, *TAGGED, "--open-mode=truncate")
    assert "will erase the output" in told


def test_the_user_of_srun_is_told_that_only_batch_jobs_are_requeued(lab: Lab) -> None:
    done = subprocess.run(
        [str(lab.slurm.bin / "srun"), "--comment=[slurm_ft]", "-n1", "true"],
        env=lab.environment(lab.spec.user), cwd=lab.shared, user=lab.spec.user,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Slurm requeues batch jobs only" in done.stderr

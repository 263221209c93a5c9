"""Every kind of job: arrays, het jobs, jobs of srun and salloc, jobs with --no-kill, jobs of a spot partition."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import resuming
from steps import (
    ATTEMPT,
    ENDED,
    FELL_OFF,
    OPTED_IN,
    decisions,
    end,
    lose_gpu,
    make_healthy,
    reconcile,
    running,
    running_at_once,
    settings,
    status,
    submit,
)

from slurm_ft.failover import comment_tag, ledger
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.model import JobState
from slurm_ft.slurm import fields, nodelist
from slurm_ft.slurm.cli import CommandLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_ft.slurm.protocol import JobRecord

# Jobs of `spot` are requeued for those of `urgent`.
PREEMPTION = (
    "PartitionName=spot Nodes=ALL PriorityTier=1",
    "PartitionName=urgent Nodes=ALL PriorityTier=10",
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(nodes=4, slurm_conf=PREEMPTION)) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    """Every test begins with idle nodes and leaves no job behind."""
    yield
    make_healthy(lab)


def records(lab: Lab, job: int | str) -> dict[str, JobRecord]:
    """The job, the tasks of an array, or the components of a het job, by address."""
    return {record.address: record for record in CommandLine.of(settings(lab)).jobs((f"--jobs={job}",))}


def excluded(lab: Lab, address: str) -> set[str]:
    return set(nodelist.expand(CommandLine.of(settings(lab)).excluded_nodes(address)))


HET = ATTEMPT.replace(
    "#!/bin/bash\n",
    """#!/bin/bash
#SBATCH --comment=[slurm_ft] --requeue --nodes=1 --gres=gpu:1 --exclude=n4 --output=%j.log
#SBATCH hetjob
#SBATCH --comment=mine --requeue --nodes=1 --gres=gpu:2 --exclude=n3 --output=%j.log
""",
)


def test_a_het_job_whose_component_lost_a_gpu_fails_over_as_a_whole(lab: Lab) -> None:
    job = lab.sbatch(HET)
    first = running(lab, job, 0)
    component = records(lab, job)[f"{job}+1"]
    bad = component.nodes
    assert bad != first
    lab.inject_xid(bad, 1, 79, FELL_OFF)
    end(lab, job, 0, 1)
    running(lab, job, 1)
    again = records(lab, job)
    assert {record.restarts for record in again.values()} == {1}
    assert bad not in {record.nodes for record in again.values()}
    assert excluded(lab, f"{job}+0") == {"n4", bad}
    assert excluded(lab, f"{job}+1") == {"n3", bad}
    assert again[f"{job}+0"].comment == f"[slurm_ft n=1/3 ex={bad} cause=xid79]"
    assert (again[f"{job}+1"].comment, again[f"{job}+1"].admin_comment) == ("mine", "")
    history = ledger.read(again[f"{job}+0"].admin_comment)
    assert history is not None
    assert [attempt.nodes for attempt in history.attempts] == [nodelist.fold(sorted({first, bad}))]
    assert [entry["rule"] for entry in decisions(lab, job)] == ["hardware_fault"]
    assert decisions(lab, component.raw_id) == []
    end(lab, job, 1, 0)
    lab.wait_for(lambda: {record.state for record in records(lab, job).values()} == {"COMPLETED"}, 30)


def test_a_het_job_with_a_component_on_a_dead_node_is_counted_once(lab: Lab) -> None:
    job = lab.sbatch(HET)
    running(lab, job, 0)
    bad = records(lab, job)[f"{job}+1"].nodes
    lab.run("scontrol", "update", f"NodeName={bad}", "State=DOWN", "Reason=power")
    running(lab, job, 1)
    leader = records(lab, job)[f"{job}+0"]
    assert (leader.restarts, leader.comment) == (1, f"[slurm_ft n=1/3 ex={bad} cause=node_down]")
    assert bad in excluded(lab, f"{job}+1")


def test_a_het_jobs_own_error_is_not_retried(lab: Lab) -> None:
    job = lab.sbatch(HET)
    running(lab, job, 0)
    end(lab, job, 0, 3)
    lab.wait_for(lambda: {record.state for record in records(lab, job).values()} == {"FAILED"}, 30)
    assert {record.restarts for record in records(lab, job).values()} == {0}
    assert [entry["rule"] for entry in decisions(lab, job)] == ["no_hardware_signal"]
    assert not any(lab.node(node)[0].startswith("drain") for node in lab.nodes)


def test_of_an_array_each_task_has_its_own_count_and_the_limit_of_running_tasks_holds(lab: Lab) -> None:
    """While a task waits to be started again, Slurm gives its place to the next one."""
    array = submit(lab, *OPTED_IN[:3], "--array=1-3%1", "--output=/dev/null")
    failing = {f"{array}_1", f"{array}_3"}
    for _ in range(5):
        lab.wait_for(lambda: run_now(lab, array), 30, "a running task")
        (task,) = run_now(lab, array)
        if task.address in failing and task.restarts == 0:
            lose_gpu(lab, task.raw_id, 0)
        else:
            running(lab, task.raw_id, task.restarts)
            end(lab, task.raw_id, task.restarts, 0)
        lab.wait_for(lambda task=task: task.address not in {one.address for one in run_now(lab, array)}, 30)
    lab.wait_for(lambda: {task.state for task in records(lab, array).values()} == {"COMPLETED"}, 30)
    ended = {task.address: (task.restarts, count(task)) for task in records(lab, array).values()}
    assert ended == {f"{array}_1": (1, 1), f"{array}_2": (0, 0), f"{array}_3": (1, 1)}


def run_now(lab: Lab, array: int) -> list[JobRecord]:
    return [task for task in records(lab, array).values() if task.state == "RUNNING"]


def count(job: JobRecord) -> int:
    tag = comment_tag.read(job.comment)
    assert tag is not None
    return tag.count


@pytest.mark.parametrize("launcher", [("srun",), ("salloc", "srun")])
def test_a_job_without_a_batch_script_cannot_be_requeued_and_its_status_says_so(
    lab: Lab, launcher: tuple[str, ...]
) -> None:
    script = lab.shared / "step.sh"
    script.write_text("#!/bin/sh\necho $SLURM_JOB_ID $SLURMD_NODENAME >step.new; mv step.new step; sleep 1; exit 1\n")
    script.chmod(0o755)
    (lab.shared / "step").unlink(missing_ok=True)
    command = (launcher[0], OPTED_IN[0], "--gres=gpu:1", *launcher[1:], str(script))
    with subprocess.Popen(
        [str(lab.slurm.bin / command[0]), *command[1:]], env=lab.environment(lab.spec.user), cwd=lab.shared,
        user=lab.spec.user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ):  # fmt: skip
        lab.wait_for((lab.shared / "step").exists, 30, "the step")
        job, node = (lab.shared / "step").read_text().split()
        lab.inject_xid(node, 0, 79, FELL_OFF)
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"]) == ("FAILED", "0")
    lab.wait_node(node, "drained")
    shown = status(lab, int(job))
    assert (shown.state, shown.cause) == (JobState.FAILED, "xid79 (not requeueable)")
    lab.wait_for(lambda: decisions(lab, int(job)), 10)
    assert [entry["rule"] for entry in decisions(lab, int(job))] == ["not_requeueable"]
    story = lab.run(str(lab.command), "explain", job, env={"SLURM_FT_CONFIG": str(lab.layout.config)})
    assert "--no-requeue or is not a batch job" in story


def test_a_job_with_no_kill_whose_batch_host_dies_fails_over(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--no-kill", "--nodes=2")
    dead = running(lab, job, 0)
    lab.run("scontrol", "update", f"NodeName={dead}", "State=DOWN", "Reason=power")
    if fields.NO_KILL_OUTLIVES_ITS_SCRIPT.on(lab.slurm.version):
        time.sleep(3)
        reconcile(lab)
        left = lab.job(job)
        assert (left["state"], left["restarts"], left["comment"]) == ("RUNNING", "0", "[slurm_ft]")
        return
    assert running(lab, job, 1) != dead
    assert lab.job(job)["comment"] == f"[slurm_ft n=1/3 ex={dead} cause=node_down]"


def test_a_job_with_no_kill_lives_on_when_another_of_its_nodes_dies(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--no-kill", "--nodes=2")
    first = running(lab, job, 0)
    (dead,) = set(nodelist.expand(lab.job(job)["nodelist"])) - {first}
    lab.run("scontrol", "update", f"NodeName={dead}", "State=DOWN", "Reason=power")
    lab.wait_for(lambda: lab.job(job)["nodelist"] == first, 20)
    end(lab, job, 0, 0)
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"], done["comment"]) == ("COMPLETED", "0", "[slurm_ft]")


def test_a_spot_job_is_preempted_as_often_as_it_takes_and_still_has_its_failovers(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--partition=spot", "--nodes=4", "--exclusive")
    running(lab, job, 0)
    for restart in (1, 2):
        urgent = submit(lab, "--partition=urgent", "--nodes=1", "--exclusive")
        running(lab, urgent, 0)
        end(lab, urgent, 0, 0)
        running_at_once(lab, job, restart)
    found = lab.job(job)
    assert (found["restarts"], found["comment"], found["exc_nodes"]) == ("2", "[slurm_ft]", "")
    history = ledger.read(found["admin_comment"])
    assert history is not None
    assert [(attempt.cause, attempt.counted) for attempt in history.attempts] == [("requeued_elsewhere", False)] * 2


def test_a_preempted_training_goes_on_from_its_newest_checkpoint(lab: Lab) -> None:
    out = resuming.output_directory(lab)
    job = resuming.submit(lab, out, sbatch=("--partition=spot", "--nodes=4", "--exclusive"))
    running(lab, job, 0)
    resuming.save(out, 20)
    resuming.save(out, 40)
    urgent = submit(lab, "--partition=urgent", "--nodes=1", "--exclusive")
    running(lab, urgent, 0)
    end(lab, urgent, 0, 0)
    running_at_once(lab, job, 1)
    lab.wait_for(lambda: "step=40 attempt=1" in lab.job(job)["comment"], 30, "the step in the Comment")
    assert "n=" not in lab.job(job)["comment"]


STEPS = ATTEMPT.replace('echo "$restart $SLURMD_NODENAME"', "srun sh -c 'exit 7'\necho \"$restart $SLURMD_NODENAME\"")


def test_a_step_that_fails_in_a_script_that_ends_well_is_reported_only(lab: Lab) -> None:
    job = lab.sbatch(STEPS, *OPTED_IN)
    bad = lose_gpu(lab, job, 0, code=0)
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"], done["comment"]) == ("COMPLETED", "0", "[slurm_ft]")
    (decision,) = decisions(lab, job)
    assert (decision["rule"], decision["action"]) == ("step_failed", "none")
    assert "a step ended 7:0" in decision["reason"]
    lab.wait_node(bad, "drained")


def test_a_site_may_take_a_failed_step_for_a_failure_of_the_job(lab: Lab) -> None:
    with configured(lab, failed_step="failover"):
        job = lab.sbatch(STEPS, *OPTED_IN)
        bad = lose_gpu(lab, job, 0, code=0)
        assert running(lab, job, 1) != bad
        end(lab, job, 1, 0)
        done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["comment"]) == ("COMPLETED", f"[slurm_ft n=1/3 ex={bad} cause=xid79]")
    assert [entry["rule"] for entry in decisions(lab, job)] == ["hardware_fault", "step_failed"]


def test_a_cancelled_job_is_not_revived_though_its_steps_were_killed(lab: Lab) -> None:
    with configured(lab, failed_step="failover"):
        job = lab.sbatch("#!/bin/sh\necho 0 $SLURMD_NODENAME >started.$SLURM_JOB_ID\nsrun sleep 60\n", *OPTED_IN)
        node = running(lab, job, 0)
        lab.wait_for(lambda: f"{job}.0" in lab.run("squeue", "--steps", "-h", "-o", "%i"), 20, "the step")
        lab.inject_xid(node, 0, 79, FELL_OFF)
        lab.run("scancel", str(job))
        assert lab.wait_job(job, *ENDED)["state"] == "CANCELLED"
        lab.wait_node(node, "drained")
        assert lab.job(job)["restarts"] == "0"


@contextmanager
def configured(lab: Lab, **keys: str) -> Iterator[None]:
    """The lab with these keys in its configuration; the hooks read it each time."""
    before = lab.layout.config.read_text()
    lab.layout.config.write_text(before + "".join(f"{key}: {value}\n" for key, value in keys.items()))
    try:
        yield
    finally:
        lab.layout.config.write_text(before)

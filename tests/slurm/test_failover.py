"""The issue's cases on a real cluster: jobs of an ordinary user, faults as real lines of the kernel log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from steps import (
    ENDED,
    FELL_OFF,
    OPTED_IN,
    decisions,
    end,
    lose_gpu,
    make_healthy,
    rows,
    running,
    settings,
    status,
    submit,
)

from slurm_ft.failover import comment_tag, ledger
from slurm_ft.model import JobState
from slurm_ft.slurm import nodelist
from slurm_ft.slurm.cli import CommandLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_ft.lab import Lab


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    """Every test begins with idle nodes and leaves no job behind."""
    yield
    make_healthy(lab)


def test_a_lost_gpu_drains_its_node_and_the_same_job_completes_elsewhere(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    bad = lose_gpu(lab, job, 0)
    good = running(lab, job, 1)
    end(lab, job, 1, 0)
    done = lab.wait_job(job, *ENDED)
    assert done["state"] == "COMPLETED"
    assert good != bad
    assert (done["restarts"], done["exc_nodes"]) == ("1", bad)
    assert done["comment"] == f"[slurm_ft n=1/3 ex={bad} cause=xid79]"
    state, reason, _ = lab.node(bad)
    assert state.startswith("drain")
    assert reason.startswith("slurm_ft: hardware xid79 gpu ")
    history = ledger.read(done["admin_comment"])
    assert history is not None
    assert (history.count, history.excluded, history.attempts[0].nodes) == (1, (bad,), bad)
    assert status(lab, job).state is JobState.COMPLETED


def test_the_one_log_holds_all_attempts(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    bad = lose_gpu(lab, job, 0)
    good = running(lab, job, 1)
    end(lab, job, 1, 0)
    lab.wait_job(job, "COMPLETED")
    log = (lab.shared / f"{job}.log").read_text().splitlines()
    assert [line for line in log if not line.startswith("slurm_ft:")] == [f"attempt 0 on {bad}", f"attempt 1 on {good}"]


def test_a_users_error_is_not_retried_and_drains_nothing(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    node = running(lab, job, 0)
    end(lab, job, 0, 1)
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"], done["comment"]) == ("FAILED", "0", "[slurm_ft]")
    assert lab.node(node)[0] == "idle"
    shown = status(lab, job)
    assert (shown.state, shown.cause) == (JobState.INTERNAL_ERROR, "exit1:0")
    assert [entry["rule"] for entry in decisions(lab, job)] == ["no_hardware_signal"]


def test_a_job_may_ask_for_a_lower_limit(lab: Lab) -> None:
    job = submit(lab, "--comment=[slurm_ft limit=0]", *OPTED_IN[1:])
    lose_gpu(lab, job, 0)
    assert lab.wait_job(job, *ENDED)["state"] == "FAILED"
    assert status(lab, job).state is JobState.MAX_RETRIES_EXCEEDED


def test_a_job_that_did_not_ask_is_left_failed_but_its_node_is_drained(lab: Lab) -> None:
    job = submit(lab, "--comment=mine", *OPTED_IN[1:])
    bad = lose_gpu(lab, job, 0)
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"], done["comment"]) == ("FAILED", "0", "mine")
    assert done["admin_comment"] == ""
    assert lab.wait_node(bad, "drained")[1].startswith("slurm_ft: hardware xid79")
    assert status(lab, job).state is JobState.FAILED
    assert decisions(lab, job) == []


def test_no_requeue_is_obeyed_and_the_node_drained(lab: Lab) -> None:
    job = submit(lab, OPTED_IN[0], "--no-requeue", *OPTED_IN[2:])
    bad = lose_gpu(lab, job, 0)
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"]) == ("FAILED", "0")
    assert lab.wait_node(bad, "drained")[1].startswith("slurm_ft: hardware xid79")
    shown = status(lab, job)
    assert (shown.state, shown.cause) == (JobState.FAILED, "xid79 (not requeueable)")
    assert "--no-requeue" in str(decisions(lab, job)[0]["reason"])


def test_of_two_nodes_only_the_bad_one_is_drained_and_excluded(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--nodes=2")
    first = running(lab, job, 0)
    nodes = set(CommandLine.of(settings(lab)).job(str(job)).nodes[2:-1].replace("-", ",").split(","))  # n[1-2]
    bad = next(f"n{number}" for number in sorted(nodes) if f"n{number}" != first)
    lab.inject_xid(bad, 0, 79, FELL_OFF)
    end(lab, job, 0, 1)
    running(lab, job, 1)
    assert lab.job(job)["exc_nodes"] == bad
    drained = [node for node in lab.nodes if lab.node(node)[0].startswith("drain")]
    assert drained == [bad]
    end(lab, job, 1, 0)
    assert lab.wait_job(job, *ENDED)["state"] == "COMPLETED"


FAR_END = "RLW_REMAP Fatal XC0 i0 Link 01 (0x00000082 0x00000040)"


def two_nodes(lab: Lab, job: int) -> tuple[str, str]:
    """The nodes of a two-node job."""
    found = CommandLine.of(settings(lab)).job(str(job))
    assert found is not None
    first, second = nodelist.expand(found.nodes)
    return first, second


def test_a_node_that_saw_only_the_far_end_of_a_link_goes_back_into_service(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--nodes=2")
    running(lab, job, 0)
    root, healthy = two_nodes(lab, job)
    lab.inject_xid(healthy, 0, 145, FAR_END)  # before the root has said a word
    time.sleep(0.2)
    lab.inject_xid(root, 0, 79, FELL_OFF)
    end(lab, job, 0, 1)
    running(lab, job, 1)
    lab.wait_for(lambda: not lab.node(healthy)[0].startswith("drain"), 20, f"{healthy} returned to service")
    assert lab.job(job)["exc_nodes"] == root
    assert [node for node in lab.nodes if lab.node(node)[0].startswith("drain")] == [root]


def test_the_root_is_the_node_whose_fault_came_first_whoever_judges_first(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--nodes=3")
    running(lab, job, 0)
    for node in ("n3", "n2"):
        lab.inject_xid(node, 0, 79, FELL_OFF)
        time.sleep(0.3)
    end(lab, job, 0, 1)
    lab.wait_for(lambda: decisions(lab, job), 30, "the decision")
    lab.wait_for(lambda: lab.job(job)["exc_nodes"] == "n3", 20, "the exclusion of n3")
    assert [node for node in lab.nodes if lab.node(node)[0].startswith("drain")] == ["n2", "n3"]


def test_if_every_node_sees_a_broken_link_no_node_is_blamed(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--nodes=2")
    running(lab, job, 0)
    for node in two_nodes(lab, job):
        lab.inject_xid(node, 0, 145, FAR_END)
    end(lab, job, 0, 1)
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"], done["exc_nodes"]) == ("FAILED", "0", "")
    assert [entry["rule"] for entry in decisions(lab, job)] == ["all_nodes_blamed"]
    lab.wait_for(lambda: not any(lab.node(node)[0].startswith("drain") for node in lab.nodes), 20, "no drained node")


def test_two_nodes_that_are_both_broken_stay_drained(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--nodes=2")
    running(lab, job, 0)
    both = two_nodes(lab, job)
    for node in both:
        lab.inject_xid(node, 0, 79, FELL_OFF)
    end(lab, job, 0, 1)
    assert lab.wait_job(job, *ENDED)["state"] == "FAILED"
    assert [entry["rule"] for entry in decisions(lab, job)] == ["all_nodes_blamed"]
    assert [node for node in lab.nodes if lab.node(node)[0].startswith("drain")] == list(both)


def test_the_users_own_exclusions_survive(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--exclude=n2")
    bad = lose_gpu(lab, job, 0)
    good = running(lab, job, 1)
    excluded = lab.job(job)["exc_nodes"]
    assert set(excluded.removeprefix("n[").removesuffix("]").replace("-", ",").split(",")) == {"2", bad[1:]}
    assert good not in ("n2", bad)


def test_dependents_see_only_the_last_attempt(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    running(lab, job, 0)
    after = lab.sbatch("#!/bin/sh\ntrue\n", f"--dependency=afterok:{job}", "--output=/dev/null")
    never = lab.sbatch("#!/bin/sh\ntrue\n", f"--dependency=afternotok:{job}", "--output=/dev/null")
    lose_gpu(lab, job, 0)
    running(lab, job, 1)
    assert lab.job(after)["state"] == "PENDING"
    assert lab.job(never)["state"] == "PENDING"
    end(lab, job, 1, 0)
    assert lab.wait_job(after, *ENDED)["state"] == "COMPLETED"
    assert lab.job(never)["state"] == "PENDING"
    assert lab.job(never)["reason"] in ("DependencyNeverSatisfied", "Dependency")


def test_a_fault_from_before_the_job_has_no_effect(lab: Lab) -> None:
    for node in lab.nodes:
        lab.inject_xid(node, 0, 79, FELL_OFF)
    job = submit(lab, *OPTED_IN)
    node = running(lab, job, 0)
    end(lab, job, 0, 1)
    assert lab.wait_job(job, *ENDED)["state"] == "FAILED"
    assert lab.node(node)[0] == "idle"
    assert status(lab, job).state is JobState.INTERNAL_ERROR


def test_a_fault_of_another_jobs_gpu_on_the_same_node_has_no_effect(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--nodelist=n1", "--ntasks=1")
    other = submit(lab, *OPTED_IN, "--nodelist=n1", "--ntasks=1")
    assert running(lab, job, 0) == running(lab, other, 0) == "n1"
    lab.inject_xid("n1", 1, 79, FELL_OFF)  # the second job's GPU
    end(lab, job, 0, 1)
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"]) == ("FAILED", "0")
    assert not lab.node("n1")[0].startswith("drain")


def test_an_admins_drain_keeps_the_admins_reason_and_the_job_moves_on(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    bad = running(lab, job, 0)
    lab.run("scontrol", "update", f"NodeName={bad}", "State=DRAIN", "Reason=fan noise, ticket 7")
    lab.run("scontrol", "update", f"NodeName={bad}", "Comment=rack 12")
    lose_gpu(lab, job, 0)
    good = running(lab, job, 1)
    assert good != bad
    assert lab.job(job)["exc_nodes"] == bad
    state, reason, comment = lab.node(bad)
    assert state.startswith("drain")
    assert (reason, comment) == ("fan noise, ticket 7", "rack 12")


def test_an_application_xid_is_not_hardware(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    node = running(lab, job, 0)
    lab.inject_xid(node, 0, 31, "channel 0x0000001a, intr 00000000. MMU Fault: ENGINE GRAPHICS")
    lab.inject_xid(node, 0, 45, "Ch 0000000a")
    end(lab, job, 0, 1)
    assert lab.wait_job(job, *ENDED)["state"] == "FAILED"
    assert lab.node(node)[0] == "idle"


def test_a_good_end_with_a_fault_drains_the_node_and_keeps_the_result(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    bad = lose_gpu(lab, job, 0, code=0)
    assert lab.wait_job(job, *ENDED)["state"] == "COMPLETED"
    assert lab.wait_node(bad, "drained")[1].startswith("slurm_ft: hardware xid79")


def test_a_cancelled_job_stays_cancelled(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    node = running(lab, job, 0)
    lab.inject_xid(node, 0, 79, FELL_OFF)
    lab.run("scancel", str(job))
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"]) == ("CANCELLED", "0")
    lab.wait_node(node, "drained")


def test_a_node_that_goes_down_is_excluded_and_counted_once(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    bad = running(lab, job, 0)
    lab.run("scontrol", "update", f"NodeName={bad}", "State=DOWN", "Reason=power")
    good = running(lab, job, 1)
    end(lab, job, 1, 0)
    done = lab.wait_job(job, *ENDED)
    assert good != bad
    assert (done["state"], done["restarts"], done["exc_nodes"]) == ("COMPLETED", "1", bad)
    tag = comment_tag.read(done["comment"])
    assert tag is not None
    assert (tag.count, tag.cause) == (1, "node_down")


def test_a_running_job_on_a_bad_node_that_an_admin_requeues_is_excluded_and_counted_once(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    bad = running(lab, job, 0)
    lab.inject_xid(bad, 0, 79, FELL_OFF)
    lab.run("scontrol", "requeue", str(job))
    assert running(lab, job, 1) != bad
    end(lab, job, 1, 0)
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["exc_nodes"]) == ("COMPLETED", bad)
    assert "n=1/3" in done["comment"]


def test_a_users_error_after_a_requeue_is_not_excused_by_a_fault_from_before_it(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    node = running(lab, job, 0)
    lab.inject_xid(node, 0, 94, "Contained: SM (0x1). RST: No, D-RST: No")  # hardware, and leaves the node in service
    lab.run("scontrol", "requeue", str(job))
    assert running(lab, job, 1) != node
    end(lab, job, 1, 1)
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"], status(lab, job).state) == ("FAILED", "1", JobState.INTERNAL_ERROR)
    assert lab.node(node) == ("idle", "", "")


IMAGE = """#!/bin/sh
echo 'slurmstepd: error: pyxis: failed to import docker image'
echo "slurmstepd: error: pyxis: couldn't start container"
exit 1
"""


def test_an_image_that_cannot_be_loaded_is_told_apart_and_not_retried(lab: Lab) -> None:
    job = lab.sbatch(IMAGE, *OPTED_IN)
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"]) == ("FAILED", "0")
    assert status(lab, job).state is JobState.IMAGE_PULL_BACKOFF
    assert [entry["rule"] for entry in decisions(lab, job)] == ["image_not_loaded"]
    assert lab.node(done["nodelist"])[0] == "idle"


def test_an_array_task_fails_over_alone(lab: Lab) -> None:
    array = submit(lab, *OPTED_IN[:3], "--array=7-8", "--output=/dev/null", "--exclude=n3")
    slurm = CommandLine.of(settings(lab))
    lab.wait_for(lambda: sum(job.state == "RUNNING" for job in slurm.jobs((f"--jobs={array}",))) == 2, 30)
    victim = next(job for job in slurm.jobs((f"--jobs={array}",)) if job.address.endswith("_7"))
    other = next(job for job in slurm.jobs((f"--jobs={array}",)) if job.address.endswith("_8"))
    running(lab, victim.raw_id, 0)
    gpu = 0 if victim.nodes != other.nodes else 1
    for index in {0, gpu}:
        lab.inject_xid(victim.nodes, index, 79, FELL_OFF)
    end(lab, victim.raw_id, 0, 1)
    running(lab, victim.raw_id, 1)
    again = slurm.job(victim.address)
    assert again is not None
    assert "n=1/3" in again.comment
    untouched = slurm.job(other.address)
    assert untouched is not None
    assert (untouched.restarts, untouched.comment) == (0, "[slurm_ft]")


def test_the_status_table_of_a_stranger_shows_it_too(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--job-name=train")
    bad = lose_gpu(lab, job, 0)
    good = running(lab, job, 1)
    header, row = rows(status(lab, job))
    cells = dict(zip(header.split(), row.split(), strict=True))
    assert float(cells.pop("TIME").replace(":", ".")) < 1  # less than a minute
    assert cells == {
        "JOBID": str(job),
        "PARTITION": "main",
        "NAME": "train",
        "USER": lab.spec.user,
        "STATE": "Running",
        "NODES": "1",
        "ATTEMPT": "2/4",
        "CAUSE": "xid79",
        "EXCLUDED": bad,
        "LAST_STEP": "-",
        "CHECKPOINT": "-",
        "NODELIST(REASON)": good,
    }

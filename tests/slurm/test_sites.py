"""Sites that differ: only observing, a node epilog that hangs or is missing, hooks that run as an ordinary account."""

from __future__ import annotations

import pwd
import time
from pathlib import Path

import pytest
from steps import ENDED, FELL_OFF, OPTED_IN, decisions, end, lose_gpu, running, status, submit

from slurm_ft.lab import Lab, LabSpec
from slurm_ft.model import JobState


def test_observe_mode_records_the_decision_and_changes_nothing() -> None:
    with Lab(LabSpec(config={"mode": "observe"})) as lab:
        job = submit(lab, *OPTED_IN)
        node = lose_gpu(lab, job, 0)
        done = lab.wait_job(job, *ENDED)
        lab.wait_for(lambda: decisions(lab, job), 10, "the decision")
        assert (done["state"], done["restarts"], done["comment"]) == ("FAILED", "0", "[slurm_ft]")
        assert (done["admin_comment"], done["exc_nodes"]) == ("", "")
        assert lab.node(node) == ("idle", "", "")
        (decision,) = decisions(lab, job)
        assert (decision["mode"], decision["action"], decision["exclude"]) == ("observe", "requeue", [node])


def test_the_packaged_default_only_observes() -> None:
    with Lab(LabSpec()) as lab:
        path = lab.base / "etc" / "slurm_ft.yaml"
        path.write_text(path.read_text().replace("mode: act\n", ""))
        job = submit(lab, *OPTED_IN)
        lose_gpu(lab, job, 0)
        assert lab.wait_job(job, *ENDED)["state"] == "FAILED"
        assert decisions(lab, job)[0]["mode"] == "observe"


def test_a_hanging_node_epilog_stalls_the_decision_no_longer_than_its_bound(tmp_path: Path) -> None:
    script = tmp_path / "hangs"
    script.write_text("#!/bin/sh\nexec sleep 300\n")
    script.chmod(0o755)
    tmp_path.chmod(0o755)
    spec = LabSpec(hooks={"epilog": script}, config={"node_epilog_wait": 1})
    with Lab(spec) as lab:
        job = submit(lab, *OPTED_IN)
        running(lab, job, 0)
        began = time.monotonic()
        end(lab, job, 0, 1)
        lab.wait_for(lambda: decisions(lab, job), 60, "the decision")
        assert time.monotonic() - began < 60  # against an epilog of 300 s
        (decision,) = decisions(lab, job)
        assert (decision["rule"], decision["action"]) == ("epilog_silent", "none")


def test_a_missing_node_epilog_means_no_evidence_and_no_retry() -> None:
    with Lab(LabSpec(hooks={"epilog": None})) as lab:
        job = submit(lab, *OPTED_IN)
        lose_gpu(lab, job, 0)
        assert lab.wait_job(job, *ENDED)["state"] == "FAILED"
        assert status(lab, job).state is JobState.INTERNAL_ERROR


def test_one_bad_node_does_not_wait_for_a_dead_one() -> None:
    with Lab(LabSpec(slurm_conf=("SlurmdTimeout=10",))) as lab:
        job = submit(lab, *OPTED_IN, "--nodes=2")
        first = running(lab, job, 0)
        dead = next(node for node in ("n1", "n2") if node != first)
        lab.kill_node(dead)
        lab.run("scontrol", "update", f"NodeName={dead}", "State=DOWN", "Reason=power cut")
        lab.run("scontrol", "update", "NodeName=n3", "State=RESUME") if lab.node("n3")[0] != "idle" else None
        running(lab, job, 1)
        assert lab.job(job)["exc_nodes"] == dead
        assert "n=1/3" in lab.job(job)["comment"]


@pytest.mark.skipif(
    "slurm" not in {account.pw_name for account in pwd.getpwall()}, reason="Debian's slurm packages made no account"
)
def test_the_controller_hooks_work_as_an_unprivileged_slurmuser() -> None:
    with Lab(LabSpec(slurm_user="slurm")) as lab:
        job = submit(lab, *OPTED_IN)
        bad = lose_gpu(lab, job, 0)
        assert running(lab, job, 1) != bad
        end(lab, job, 1, 0)
        assert lab.wait_job(job, *ENDED)["exc_nodes"] == bad


def test_faults_on_every_attempt_end_after_exactly_three_requeues() -> None:
    with Lab(LabSpec(nodes=5)) as lab:
        job = submit(lab, *OPTED_IN)
        bad = [lose_gpu(lab, job, restart) for restart in range(4)]
        done = lab.wait_job(job, *ENDED)
        assert (done["state"], done["restarts"]) == ("FAILED", "3")
        assert len(set(bad)) == 4
        assert done["comment"] == f"[slurm_ft n=3/3 ex={','.join(bad[:3])} cause=xid79]"
        shown = status(lab, job)
        assert (shown.state, shown.cause, shown.failovers.count) == (JobState.MAX_RETRIES_EXCEEDED, "xid79", 3)
        assert [entry["action"] for entry in decisions(lab, job)] == ["requeue"] * 3 + ["none"]


def test_a_job_that_returns_to_a_surviving_node_is_judged_there_again() -> None:
    """The second attempt shares a node with the first, soon after it, where slurmd still holds its old credential."""
    with Lab(LabSpec(nodes=3)) as lab:
        job = submit(lab, *OPTED_IN, "--nodes=2")
        first = running(lab, job, 0)
        second = next(node for node in ("n1", "n2") if node != first)
        lab.inject_xid(second, 0, 79, FELL_OFF)
        end(lab, job, 0, 1)
        assert running(lab, job, 1) == first
        lab.inject_xid(first, 0, 79, FELL_OFF)
        end(lab, job, 1, 1)
        lab.wait_for(lambda: len(decisions(lab, job)) == 2, 30, "the second decision")
        assert [entry["exclude"] for entry in decisions(lab, job)] == [[second], [first]]


def test_a_fault_right_after_a_restart_of_the_controller_is_found() -> None:
    """Until a node has registered again, its Epilog is told nothing of the job's GPUs."""
    with Lab(LabSpec(nodes=2)) as lab:
        job = submit(lab, *OPTED_IN)
        running(lab, job, 0)
        lab.stop_controller()
        lab.start_controller()
        bad = lose_gpu(lab, job, 0)
        assert running(lab, job, 1) != bad
        state, reason, _ = lab.node(bad)
        assert state.startswith("drain")  # 24.11 says draining for a while
        assert reason.startswith("slurm_ft: hardware xid79")


def test_two_labs_do_not_see_each_others_faults() -> None:
    with Lab(LabSpec(nodes=1)) as one, Lab(LabSpec(nodes=1)) as other:
        job = submit(one, *OPTED_IN)
        assert running(one, job, 0) == "n1"
        other.inject_xid("n1", 0, 79, FELL_OFF)
        end(one, job, 0, 1)
        assert one.wait_job(job, *ENDED)["state"] == "FAILED"
        assert one.node("n1")[0] == "idle"

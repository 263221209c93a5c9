"""The watcher on a real cluster: jobs that do not end by themselves after a fault of their GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from steps import ENDED, FELL_OFF, OPTED_IN, decisions, end, entries, idle, make_healthy, running, settings, submit

from slurm_ft.failover import comment_tag, ledger
from slurm_ft.journal_entry import Stage
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.node import attempt_file, event_file
from slurm_ft.slurm.cli import CommandLine

if TYPE_CHECKING:
    from collections.abc import Iterator

GRACE = 1.5
LONGER = GRACE + 1.5  # after which a watcher that wants to act has acted


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(config={"watch_grace": GRACE})) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    yield
    make_healthy(lab)


def start(lab: Lab, node: str) -> subprocess.Popen[str]:
    environ = lab.environment() | {
        "SLURM_FT_CONFIG": str(lab.layout.config),
        "SLURM_FT_RUN_DIR": str(lab.layout.run / "slurm_ft"),
    }
    command = [str(lab.command), "watch", "--node", node]
    watcher = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    assert watcher.stderr is not None
    assert f"watching node {node}" in watcher.stderr.readline()
    return watcher


def test_a_node_that_slurm_does_not_know_is_told_of(lab: Lab) -> None:
    watcher = start(lab, "nope")
    assert watcher.stderr is not None
    assert "Slurm knows no node nope" in watcher.stderr.readline()
    assert stop(watcher) == 0


def stop(watcher: subprocess.Popen[str]) -> int:
    watcher.terminate()
    code = watcher.wait(20)
    assert watcher.stderr is not None
    watcher.stderr.close()
    return code


@contextmanager
def watched(lab: Lab, *nodes: str) -> Iterator[None]:
    """A watcher on each node, or on those named."""
    watchers = [start(lab, node) for node in nodes or lab.nodes]
    try:
        yield
    finally:
        codes = [stop(watcher) for watcher in watchers]
    assert set(codes) == {0}


def acts(lab: Lab, job: int) -> list[dict[str, Any]]:
    return entries(lab, job, Stage.WATCH)


def count(lab: Lab, job: int) -> int:
    tag = comment_tag.read(lab.job(job)["comment"])
    return tag.count if tag else 0


def test_a_hanging_job_is_failed_over(lab: Lab) -> None:
    with watched(lab):
        job = submit(lab, *OPTED_IN)
        bad = running(lab, job, 0)
        lab.inject_xid(bad, 0, 79, FELL_OFF)
        began = time.monotonic()
        lab.wait_node(bad, "draining", "drained", timeout_s=20)
        print(f"fault line -> drain: {time.monotonic() - began - GRACE:.2f} s after the grace time")
        good = running(lab, job, 1)
        print(f"fault line -> running elsewhere: {time.monotonic() - began - GRACE:.2f} s after the grace time")
        end(lab, job, 1, 0)
        done = lab.wait_job(job, *ENDED)
        assert good != bad
        assert (done["state"], done["restarts"], done["exc_nodes"]) == ("COMPLETED", "1", bad)
        assert done["comment"] == f"[slurm_ft n=1/3 ex={bad} cause=xid79]"
        history = ledger.read(done["admin_comment"])
        assert history is not None
        assert [attempt.cause for attempt in history.attempts if attempt.counted] == ["xid79"]
        state, reason, _ = lab.node(bad)
        assert state.startswith("drain")
        assert reason.startswith("slurm_ft: hardware xid79 gpu ")
        assert reason.count(f"job {job}.0") == 1
        assert [entry["action"] for entry in decisions(lab, job)] == ["requeue"]
        assert len(acts(lab, job)) == 1
        assert_explained(lab, job, bad)


def assert_explained(lab: Lab, job: int, bad: str) -> None:
    """To an admin on the controller with all there is, to the user with the ledger and what the nodes carry."""
    environ = {"SLURM_FT_CONFIG": str(lab.layout.config)}
    story = lab.run(str(lab.command), "explain", str(job), env=environ)
    for part in (
        f"restart 0 on {bad}",
        "event file, record",
        "(kernel_log)",
        "node action drain",
        "record on the node",
        "watcher ",
        "rule hardware_fault",
    ):
        assert part in story
    assert "excluded" in lab.run(str(lab.command), "explain", str(job), env=environ, user=lab.spec.user)


def test_a_job_that_ends_within_the_grace_time_is_the_epilogs_alone(lab: Lab) -> None:
    with watched(lab):
        job = submit(lab, *OPTED_IN)
        bad = running(lab, job, 0)
        lab.inject_xid(bad, 0, 79, FELL_OFF)
        end(lab, job, 0, 1)
        assert running(lab, job, 1) != bad
        time.sleep(LONGER)
        assert (lab.job(job)["restarts"], count(lab, job)) == ("1", 1)
        assert acts(lab, job) == []


def test_a_job_that_did_not_ask_runs_on_and_its_node_is_drained(lab: Lab) -> None:
    with watched(lab):
        job = submit(lab, "--comment=mine", *OPTED_IN[1:])
        bad = running(lab, job, 0)
        lab.inject_xid(bad, 0, 79, FELL_OFF)
        assert lab.wait_node(bad, "draining", timeout_s=20)[1].startswith("slurm_ft: hardware xid79")
        lab.wait_for(lambda: acts(lab, job), 20)
        time.sleep(1)
        found = lab.job(job)
        assert (found["state"], found["restarts"], found["comment"]) == ("RUNNING", "0", "mine")
        assert [(entry["action"], entry["rule"]) for entry in acts(lab, job)] == [("none", "not_opted_in")]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (("--comment=[slurm_ft limit=0]", *OPTED_IN[1:]), "limit_reached"),
        ((OPTED_IN[0], "--no-requeue", *OPTED_IN[2:]), "not_requeueable"),
    ],
)
def test_a_job_that_would_not_be_requeued_is_not_ended(lab: Lab, options: tuple[str, ...], rule: str) -> None:
    with watched(lab):
        job = submit(lab, *options)
        bad = running(lab, job, 0)
        lab.inject_xid(bad, 0, 79, FELL_OFF)
        lab.wait_node(bad, "draining", timeout_s=20)
        lab.wait_for(lambda: acts(lab, job), 20)
        time.sleep(1)
        assert (lab.job(job)["state"], lab.job(job)["restarts"]) == ("RUNNING", "0")
        assert [entry["rule"] for entry in acts(lab, job)] == [rule]


def test_of_two_nodes_the_one_that_does_not_run_the_script_fails_the_job_over(lab: Lab) -> None:
    with watched(lab):
        job = submit(lab, *OPTED_IN, "--nodes=2")
        first = running(lab, job, 0)
        bad = next(node for node in ("n1", "n2", "n3") if node != first and lab.node(node)[0] != "idle")
        lab.inject_xid(bad, 0, 79, FELL_OFF)
        running(lab, job, 1)
        assert (lab.job(job)["exc_nodes"], count(lab, job)) == (bad, 1)
        assert [node for node in lab.nodes if lab.node(node)[0].startswith("drain")] == [bad]


def test_an_array_task_is_failed_over_alone(lab: Lab) -> None:
    with watched(lab):
        array = submit(lab, *OPTED_IN[:3], "--array=7-8", "--output=/dev/null", "--ntasks-per-node=1")
        slurm = CommandLine.of(settings(lab))
        query = (f"--jobs={array}",)
        lab.wait_for(lambda: sum(job.state == "RUNNING" for job in slurm.jobs(query)) == 2, 30)
        victim = next(job for job in slurm.jobs(query) if job.raw_id == array)  # one task has the id of the array
        other = next(job for job in slurm.jobs(query) if job.raw_id != array)
        running(lab, victim.raw_id, 0)
        notes = attempt_file.running(lab.layout.run / "slurm_ft", victim.nodes)
        gpu = next(note.gpus for note in notes if note.raw_id == victim.raw_id)
        lab.inject_xid(victim.nodes, int(gpu), 79, FELL_OFF)
        running(lab, victim.raw_id, 1)
        untouched = slurm.job(other.address)
        assert untouched is not None
        assert (untouched.state, untouched.restarts, untouched.comment) == ("RUNNING", 0, "[slurm_ft]")


def test_an_xid_45_storm_after_scancel_drains_nothing(lab: Lab) -> None:
    with watched(lab):
        job = submit(lab, *OPTED_IN)
        node = running(lab, job, 0)
        lab.run("scancel", str(job))
        for channel in range(60):
            lab.inject_xid(node, channel % 2, 45, f"Ch {channel:08x}")
        lab.wait_job(job, "CANCELLED")
        time.sleep(LONGER)
        assert (lab.job(job)["restarts"], acts(lab, job)) == ("0", [])
        lab.wait_for(partial(idle, lab, node), 30)


def test_a_fault_from_before_the_job_convicts_nobody(lab: Lab) -> None:
    lab.inject_xid("n1", 0, 79, FELL_OFF)
    job = submit(lab, *OPTED_IN, "--nodelist=n1")
    assert running(lab, job, 0) == "n1"
    with watched(lab):  # which reads the whole log
        time.sleep(LONGER)
        assert acts(lab, job) == []
        assert lab.node("n1")[0] in ("mixed", "allocated")


def test_a_watcher_killed_in_the_grace_time_is_replaced_by_the_next(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    bad = running(lab, job, 0)
    first = start(lab, bad)
    lab.inject_xid(bad, 0, 79, FELL_OFF)
    recorded = event_file.path_of(settings(lab).state_dir, bad)
    name = f"{job}.0"
    lab.wait_for(lambda: any(name in one.attempts for one in event_file.read(recorded)), 20)
    os.kill(first.pid, signal.SIGKILL)
    first.wait(20)
    assert first.stderr is not None
    first.stderr.close()
    assert acts(lab, job) == []
    with watched(lab, bad):
        assert running(lab, job, 1) != bad
        assert count(lab, job) == 1


def test_it_waits_for_slurmctld(lab: Lab) -> None:
    with watched(lab):
        job = submit(lab, *OPTED_IN)
        bad = running(lab, job, 0)
        lab.stop_controller()
        lab.inject_xid(bad, 0, 79, FELL_OFF)
        time.sleep(LONGER)
        assert acts(lab, job) == []
        lab.start_controller()
        assert running(lab, job, 1) != bad
        assert count(lab, job) == 1


def test_a_second_one_refuses_to_start(lab: Lab) -> None:
    first = start(lab, "n1")
    environ = lab.environment() | {
        "SLURM_FT_CONFIG": str(lab.layout.config),
        "SLURM_FT_RUN_DIR": str(lab.layout.run / "slurm_ft"),
    }
    command = [str(lab.command), "watch", "--node", "n1"]
    second = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=20, check=False)
    assert second.returncode == 1
    assert f"process {first.pid} watches this node already" in second.stderr
    assert stop(first) == 0
    assert stop(start(lab, "n1")) == 0


def test_it_only_says_what_it_would_do_in_mode_observe(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Lab(LabSpec(nodes=2, config={"watch_grace": GRACE, "mode": "observe"})) as lab, watched(lab):
        job = submit(lab, *OPTED_IN)
        node = running(lab, job, 0)
        lab.inject_xid(node, 0, 79, FELL_OFF)
        lab.wait_for(lambda: acts(lab, job), 20)
        time.sleep(1)
        assert lab.job(job)["state"] == "RUNNING"
        assert (lab.node(node)[1], lab.node(node)[2]) == ("", "")
        assert [(entry["mode"], entry["action"]) for entry in acts(lab, job)] == [("observe", "requeue")]

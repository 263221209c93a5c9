"""Damage control on a real cluster: pause, breaker, back-off, progress stop, returned nodes."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
import yaml
from steps import (
    ENDED,
    FELL_OFF,
    OPTED_IN,
    decisions,
    entries,
    lose_gpu,
    make_healthy,
    running,
    settings,
    status,
    submit,
)

from slurm_ft.failover import brake, ledger
from slurm_ft.journal_entry import Stage
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.model import JobState
from slurm_ft.slurm.cli import CommandLine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(nodes=3)) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    """Every test begins with idle nodes and the plain configuration, and leaves no job behind."""
    before = lab.layout.config.read_text()
    yield
    lab.layout.config.write_text(before)
    make_healthy(lab)


def configure(lab: Lab, **fields: object) -> None:
    """The hooks read the file each time."""
    known = yaml.safe_load(lab.layout.config.read_text())
    lab.layout.config.write_text(yaml.safe_dump({**known, **fields}))


def slurm_ft(lab: Lab, *arguments: str, code: int = 0) -> str:
    """Run our command as root in the lab; returns what it said."""
    environment = {**lab.environment(), "SLURM_FT_CONFIG": str(lab.layout.config)}
    environment["SLURM_FT_RUN_DIR"] = str(lab.layout.run / "slurm_ft")
    command = [sys.executable, "-m", "slurm_ft.cli.main", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def drained(lab: Lab) -> list[str]:
    return [name for name in lab.nodes if lab.node(name)[0].startswith("drain")]


def restart_at_limit(lab: Lab, job: int) -> str:
    """Wait for the decision about the job's last attempt; returns its rule."""
    lab.wait_job(job, *ENDED)
    return str(decisions(lab, job)[-1]["rule"])


def test_while_paused_nothing_is_drained_or_requeued_and_unpaused_it_is_again(lab: Lab) -> None:
    first, second = submit(lab, *OPTED_IN), submit(lab, *OPTED_IN)
    running(lab, first, 0)
    running(lab, second, 0)
    slurm_ft(lab, "pause", "new", "driver")
    lose_gpu(lab, first, 0)
    assert restart_at_limit(lab, first) == "held_back"
    assert "failover is paused (root: new driver)" in decisions(lab, first)[-1]["reason"]
    assert drained(lab) == []
    assert lab.job(first)["comment"] == "[slurm_ft]"
    assert "failovers go on" in slurm_ft(lab, "unpause")
    lab.inject_xid(running(lab, second, 0), 1, 79, FELL_OFF)
    lose_gpu(lab, second, 0)
    running(lab, second, 1)
    assert len(drained(lab)) == 1


def test_the_breaker_stops_drains_and_requeues_until_an_admin_takes_it_back(lab: Lab) -> None:
    configure(lab, breaker_nodes=1)
    jobs = [submit(lab, *OPTED_IN, f"--nodelist={name}") for name in lab.nodes]
    for job in jobs:
        running(lab, job, 0)
    lose_gpu(lab, jobs[0], 0)
    lab.wait_node("n1", "drained")
    lose_gpu(lab, jobs[1], 0)
    assert restart_at_limit(lab, jobs[1]) == "held_back"
    assert (
        "the breaker is open (2 of 3 nodes drained within 3600 s, 1 are allowed)"
        in decisions(lab, jobs[1])[0]["reason"]
    )
    assert drained(lab) == ["n1"]
    assert "the breaker is open" in slurm_ft(lab, "status")
    assert brake.in_force(CommandLine.of(settings(lab)).nodes()) is not None
    assert "ALERT: the breaker is open" in lab.log_of("slurm_ft")
    slurm_ft(lab, "unpause")
    lose_gpu(lab, jobs[2], 0)
    lab.wait_node("n3", "drained")
    lab.wait_for(partial(entries, lab, jobs[2], Stage.REQUEUED), 30, "the failover")


def test_a_job_waits_longer_before_each_attempt(lab: Lab) -> None:
    configure(lab, backoff=[0, 6])
    job = submit(lab, *OPTED_IN)
    lose_gpu(lab, job, 0)
    lose_gpu(lab, job, 1)
    lab.wait_for(lambda: len(entries(lab, job, Stage.RELEASED)) == 2, 30, "the second release")
    assert lab.job(job)["state"] == "PENDING"
    running(lab, job, 2)
    said = [entry.get("detail", "") for entry in entries(lab, job, Stage.RELEASED)]
    assert said[0] == ""
    assert "backoff" in said[1]
    requeued = entries(lab, job, Stage.REQUEUED)[1]["at"]
    started = CommandLine.of(settings(lab)).job(str(job)).started
    assert started - requeued >= 5, "whole seconds in Slurm"


def test_a_job_that_brings_no_new_checkpoint_is_ended(lab: Lab) -> None:
    configure(lab, progress_stop=1)
    job = submit(lab, *OPTED_IN)
    for restart in (0, 1):
        running(lab, job, restart)
        tag = f"[slurm_ft.resume step=20 attempt={restart}]"
        comment = lab.job(job)["comment"].partition(" [slurm_ft.resume")[0]
        lab.run("scontrol", "update", f"JobId={job}", f"Comment={comment} {tag}", user=lab.spec.user)
        lose_gpu(lab, job, restart)
    assert restart_at_limit(lab, job) == "no_progress"
    assert lab.job(job)["state"] == "FAILED"
    assert status(lab, job).state is JobState.MAX_RETRIES_EXCEEDED
    history = ledger.read(lab.job(job)["admin_comment"])
    assert history is not None
    assert [attempt.step for attempt in history.attempts] == [20]


def test_a_rule_that_is_switched_off_acts_no_more(lab: Lab) -> None:
    configure(lab, rules_off=["hardware_fault"])
    job = submit(lab, *OPTED_IN)
    lose_gpu(lab, job, 0)
    done = lab.wait_job(job, *ENDED)
    assert (done["state"], done["restarts"], done["comment"]) == ("FAILED", "0", "[slurm_ft]")
    assert drained(lab) == []
    configure(lab, rules_off=[])
    job = submit(lab, *OPTED_IN)
    bad = lose_gpu(lab, job, 0)
    running(lab, job, 1)
    assert bad in drained(lab)


def test_a_partition_without_failover_is_left_alone(lab: Lab) -> None:
    configure(lab, partitions=["other"])
    job = submit(lab, *OPTED_IN)
    lose_gpu(lab, job, 0)
    assert restart_at_limit(lab, job) == "not_opted_in"
    assert drained(lab) == []


def faults_of(listed: str, node: str) -> int:
    """The column FAULTS; the journal has those of the tests before, too."""
    header, *lines = (line for line in listed.splitlines() if line.startswith(("NODE ", f"{node} ")))
    (line,) = lines
    return int(line[header.index("FAULTS") :].split()[0])


def test_a_drained_node_is_listed_and_returned_by_undrain_and_marked_when_it_fails_again(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    bad = lose_gpu(lab, job, 0)
    other = running(lab, job, 1)
    listed = slurm_ft(lab, "nodes")
    assert f"{job}.0" in listed
    assert "RESTART_BM" in listed
    faults = faults_of(listed, bad)
    lab.run("scontrol", "update", f"NodeName={other}", "State=DRAIN", "Reason=bad fan")
    assert "drained by somebody else: bad fan" in slurm_ft(lab, "undrain", other, "--here", code=1)
    assert f"returned {bad} to service" in slurm_ft(lab, "undrain", bad, "--here")
    lab.wait_node(bad, "idle")
    second = submit(lab, *OPTED_IN, f"--nodelist={bad}")
    lose_gpu(lab, second, 0)
    lab.wait_node(bad, "drained")
    again = slurm_ft(lab, "nodes")
    assert faults_of(again, bad) == faults + 1
    assert "repeat offender" in next(line for line in again.splitlines() if line.startswith(f"{bad} "))


def test_a_fault_since_the_drain_forbids_the_return(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    bad = lose_gpu(lab, job, 0)
    running(lab, job, 1)
    lab.inject_xid(bad, 0, 79, FELL_OFF)
    said = slurm_ft(lab, "undrain", bad, "--here", code=3)
    assert "fault    kernel log: Xid 79" in said
    assert drained(lab) == [bad]
    assert f"returned {bad} to service" in slurm_ft(lab, "undrain", bad, "--here", "--force")


def test_a_node_that_was_returned_is_not_excluded_any_more(lab: Lab) -> None:
    configure(lab, backoff=[0, 600])
    job = submit(lab, *OPTED_IN)
    first = lose_gpu(lab, job, 0)
    second = running(lab, job, 1)
    assert lab.job(job)["exc_nodes"] == first
    lab.run("scontrol", "update", f"NodeName={first}", "State=RESUME")
    lose_gpu(lab, job, 1)
    lab.wait_for(lambda: len(entries(lab, job, Stage.RELEASED)) == 2, 30, "the second release")
    assert lab.job(job)["exc_nodes"] == second
    assert f"[slurm_ft n=2/3 ex={second} cause=xid79]" in lab.job(job)["comment"]
    lab.run("scontrol", "update", f"NodeName={second}", "State=RESUME")
    assert f"returned to service: {second}" in slurm_ft(lab, "reconcile")
    assert lab.job(job)["exc_nodes"] == ""
    assert "[slurm_ft n=2/3 cause=xid79]" in lab.job(job)["comment"]

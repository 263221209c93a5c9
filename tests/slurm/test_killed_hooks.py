"""Nothing lost, nothing twice: the controller's hooks killed at every step, and slurmctld under them."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import killing
import pytest
from steps import (
    ENDED,
    FELL_OFF,
    OPTED_IN,
    decisions,
    end,
    entries,
    lose_gpu,
    make_healthy,
    reconcile,
    running,
    settings,
    submit,
)

from slurm_ft.errors import SlurmCommandError
from slurm_ft.failover import claim, comment_tag, ledger
from slurm_ft.journal_entry import Stage
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.slurm import nodelist

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]
# In the order in which the hook takes them. `let_start` is in the process that outlives the hook.
STEPS = (
    "before job", "after job", "after seen", "before nodes", "after nodes", "after decided", "before requeue",
    "after requeue", "after requeued", "before excluded_nodes", "before update_job", "after update_job",
    "after recorded", "before let_start", "after let_start",
)  # fmt: skip


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("plans")
    for parent in (directory, *directory.parents[:2]):
        parent.chmod(0o755)
    return directory


@pytest.fixture(scope="module")
def lab(plans: Path) -> Iterator[Lab]:
    """A node for each attempt of each step's job."""
    hooks = {"epilog_slurmctld": killing.install(plans, REPOSITORY)}
    with Lab(LabSpec(nodes=2 * len(STEPS) + 2, gpus_per_node=1, cpus_per_node=1, hooks=hooks)) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    yield
    make_healthy(lab)


def planned(lab: Lab, plans: Path, plan: str) -> int:
    """A job whose hook will meet that plan."""
    job = submit(lab, *OPTED_IN)
    (plans / str(job)).write_text(plan)
    return job


def was_carried_out(plans: Path, job: int) -> bool:
    return (plans / f"{job}.done").exists()


def hook_has_died(lab: Lab, job: int) -> bool:
    """The job has left COMPLETING: no EpilogSlurmctld is at work any more."""
    return lab.job(job)["state"] in ("FAILED", "PENDING", "RUNNING")


def check_one_failover(lab: Lab, job: int, bad: str) -> list[str]:
    """What is wrong, if anything, with a job that should have failed over once."""
    seen = lab.job(job)
    tag, history = comment_tag.read(seen["comment"]), ledger.read(seen["admin_comment"])
    found = {
        "restarts": seen["restarts"],
        "excluded": seen["exc_nodes"],
        "count": tag and (tag.count, tag.limit),
        "ledger": history and [(one.number, one.counted, one.bad_nodes) for one in history.attempts],
        "requeued": len(entries(lab, job, Stage.REQUEUED)) <= 1,
        "decided": len(decisions(lab, job)),
    }
    wanted = {
        "restarts": "1",
        "excluded": bad,
        "count": (1, 3),
        "ledger": [(0, True, (bad,))],
        "requeued": True,
        "decided": 1,
    }
    return [f"{name}: {found[name]}" for name, value in wanted.items() if found[name] != value]


def test_a_hook_killed_at_any_step_leaves_what_reconcile_finishes(lab: Lab, plans: Path) -> None:
    jobs = {step: planned(lab, plans, f"kill {step}") for step in STEPS}
    bad = {step: lose_gpu(lab, job, 0) for step, job in jobs.items()}
    for step, job in jobs.items():
        lab.wait_for(lambda job=job: was_carried_out(plans, job), 60, f"the kill {step}")  # type: ignore[misc]
        lab.wait_for(lambda job=job: hook_has_died(lab, job), 60, f"the end of the hook killed {step}")  # type: ignore[misc]
    said = reconcile(lab)
    for job in jobs.values():
        running(lab, job, 1)
    wrong = {step: check_one_failover(lab, job, bad[step]) for step, job in jobs.items()}
    assert {step: what for step, what in wrong.items() if what} == {}, said
    reconcile(lab)
    for job in jobs.values():
        end(lab, job, 1, 0)
    for step, job in jobs.items():
        assert lab.wait_job(job, *ENDED)["state"] == "COMPLETED", step
        assert check_one_failover(lab, job, bad[step]) == [], step
    assert "nothing was left open" in reconcile(lab)


def test_the_hook_of_another_job_finishes_what_a_killed_one_left(lab: Lab, plans: Path) -> None:
    killed = planned(lab, plans, "kill after decided")
    bad = lose_gpu(lab, killed, 0)
    lab.wait_job(killed, "FAILED")
    time.sleep(11)  # reconcile.SETTLE: until then it might be in the hands of its own hook
    other = submit(lab, *OPTED_IN)
    running(lab, other, 0)
    end(lab, other, 0, 1)
    running(lab, killed, 1)
    assert check_one_failover(lab, killed, bad) == []
    assert lab.wait_job(other, *ENDED)["state"] == "FAILED"


def test_a_job_that_starts_before_it_was_recorded_is_counted_and_excluded_later(lab: Lab, plans: Path) -> None:
    job = planned(lab, plans, "kill after requeue")
    bad = lose_gpu(lab, job, 0)
    lab.wait_job(job, "PENDING")
    lab.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # in place of two minutes
    running(lab, job, 1)
    assert "n=1/3" in lab.job(job)["comment"]
    assert lab.job(job)["exc_nodes"] == ""
    lab.run("scontrol", "requeue", str(job))  # nobody's fault; the exclusion can be written now
    lab.wait_job(job, "PENDING")
    reconcile(lab)
    seen = lab.job(job)
    assert (seen["exc_nodes"], "n=1/3" in seen["comment"]) == (bad, True)


def test_a_job_cancelled_while_its_hook_was_dead_stays_cancelled(lab: Lab, plans: Path) -> None:
    job = planned(lab, plans, "kill after requeue")
    lose_gpu(lab, job, 0)
    lab.wait_job(job, "PENDING")
    lab.run("scancel", str(job))
    lab.wait_job(job, "CANCELLED")
    reconcile(lab)
    time.sleep(1)
    assert lab.job(job)["state"] == "CANCELLED"
    assert "nothing was left open" in reconcile(lab)


def test_a_restart_of_slurmctld_under_its_hooks_loses_and_doubles_nothing(lab: Lab, plans: Path) -> None:
    """slurmctld ends its hooks when it stops, and starts EpilogSlurmctld again when it is back (measured on 22.05)."""
    steps = ("after seen", "after decided", "after requeue", "after recorded")
    jobs = {step: planned(lab, plans, f"hang {step}") for step in steps}
    bad = {step: lose_gpu(lab, job, 0) for step, job in jobs.items()}
    for step, job in jobs.items():
        lab.wait_for(lambda job=job: was_carried_out(plans, job), 60, f"the hook hanging {step}")  # type: ignore[misc]
    lab.stop_controller()
    lab.start_controller()
    for step, job in jobs.items():
        lab.wait_for(lambda job=job: hook_has_died(lab, job), 60, f"COMPLETING to end, {step}")  # type: ignore[misc]
    reconcile(lab)
    for job in jobs.values():
        running(lab, job, 1)
    wrong = {step: check_one_failover(lab, job, bad[step]) for step, job in jobs.items()}
    assert {step: what for step, what in wrong.items() if what} == {}


NO_PATIENCE = """
import sys
from slurm_ft.cli.main import main
from slurm_ft.failover import progress
progress.LOST_END = 0.0
sys.exit(main(["reconcile"]))
"""


def saved_jobs(lab: Lab) -> Path:
    """Stop slurmctld, which saves its state; returns the file that holds the jobs."""
    lab.stop_controller()
    return lab.base / "state" / "slurmctld" / "job_state"


def test_an_end_that_slurmctld_lost_is_made_good(lab: Lab, plans: Path) -> None:
    """Killed with -9 it comes back with jobs saved up to five seconds before: RUNNING on nodes where nothing runs any
    more, and 22.05 had not noticed after eight minutes (measured)."""
    jobs = {step: planned(lab, plans, f"hang {step}") for step in ("after seen", "after decided")}
    for job in jobs.values():
        running(lab, job, 0)
    old = saved_jobs(lab).read_bytes()
    lab.start_controller()
    bad = {step: lose_gpu(lab, job, 0) for step, job in jobs.items()}
    for step, job in jobs.items():
        lab.wait_for(lambda job=job: was_carried_out(plans, job), 60, f"the hook hanging {step}")  # type: ignore[misc]
    saved_jobs(lab).write_bytes(old)
    lab.start_controller()
    assert {lab.job(job)["state"] for job in jobs.values()} == {"RUNNING"}
    assert "found" not in reconcile(lab)  # Slurm may yet notice
    lab.run(sys.executable, "-c", NO_PATIENCE, env={"SLURM_FT_CONFIG": str(lab.layout.config)})
    for job in jobs.values():
        lab.wait_for(lambda job=job: lab.job(job)["state"] != "COMPLETING", 60, f"COMPLETING of {job}")  # type: ignore[misc]
    reconcile(lab)
    for job in jobs.values():
        running(lab, job, 1)
    wrong = {step: check_one_failover(lab, job, bad[step]) for step, job in jobs.items()}
    assert {step: what for step, what in wrong.items() if what} == {}


CATCHES_TERM = """#!/bin/bash
trap 'exit 3' TERM
echo "0 $SLURMD_NODENAME" >> started.$SLURM_JOB_ID
for _ in $(seq 600); do sleep 0.1; done
"""


def test_a_cancelled_job_is_not_revived_by_the_hook_that_a_restart_of_slurmctld_starts_again(tmp_path: Path) -> None:
    slow = tmp_path / "epilog"
    slow.write_text(f"#!/bin/sh\nsleep 4\nexec {REPOSITORY}/epilog/node_epilog\n")
    slow.chmod(0o755)
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    with Lab(LabSpec(hooks={"epilog": slow})) as lab:
        job = lab.sbatch(CATCHES_TERM, *OPTED_IN)
        node = running(lab, job, 0)
        lab.inject_xid(node, 0, 79, FELL_OFF)
        lab.run("scancel", str(job))
        lab.wait_job(job, "COMPLETING")
        lab.stop_controller()
        lab.start_controller()
        lab.wait_node(node, "drained", "draining")
        assert lab.wait_job(job, "CANCELLED", "PENDING", "RUNNING")["state"] == "CANCELLED"
        reconcile(lab)
        assert (lab.job(job)["state"], lab.job(job)["restarts"]) == ("CANCELLED", "0")


def test_two_hooks_for_one_job_at_once_fail_it_over_once(tmp_path: Path) -> None:
    script = tmp_path / "twice"
    hook = REPOSITORY / "epilog" / "slurmctld_epilog"
    script.write_text(f"#!/bin/sh\n{hook} & {hook} & {hook}\nwait\n")
    script.chmod(0o755)
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    with Lab(LabSpec(hooks={"epilog_slurmctld": script})) as lab:
        job = submit(lab, *OPTED_IN)
        bad = lose_gpu(lab, job, 0)
        running(lab, job, 1)
        assert check_one_failover(lab, job, bad) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", "size=64k", "small", tmp_path], check=True)
    yield tmp_path
    subprocess.run(["/bin/umount", "--lazy", tmp_path], check=True)


def test_with_a_full_state_directory_it_still_acts_and_alerts(small_disk: Path) -> None:
    (small_disk / "journal.jsonl").touch()
    with (small_disk / "fill").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    _check_failover_without_a_journal(small_disk)


def test_with_a_read_only_state_directory_it_still_acts_and_alerts(small_disk: Path) -> None:
    subprocess.run(["/bin/mount", "-o", "remount,ro", small_disk], check=True)
    _check_failover_without_a_journal(small_disk)


def _check_failover_without_a_journal(state_dir: Path) -> None:
    with Lab(LabSpec(config={"state_dir": str(state_dir)})) as lab:
        assert settings(lab).state_dir == state_dir
        job = submit(lab, *OPTED_IN)
        bad = lose_gpu(lab, job, 0)
        running(lab, job, 1)
        seen = lab.job(job)
        assert (seen["restarts"], seen["exc_nodes"], "n=1/3" in seen["comment"]) == ("1", bad, True)
        assert "ALERT: the journal in" in lab.log_of("slurm_ft")
        end(lab, job, 1, 0)
        assert lab.wait_job(job, *ENDED)["state"] == "COMPLETED"


SEED = 20261129


def test_in_random_order_no_exclusion_is_lost_and_there_is_no_fourth_requeue(lab: Lab, plans: Path) -> None:
    """A short version of tests/unit/test_nothing_lost.py: several jobs at once, each with faults, node failures,
    preemptions, edits of its comment and killed hooks in an order of its own."""
    chance = random.Random(SEED)
    jobs = [submit(lab, *OPTED_IN) for _ in range(4)]
    bad: dict[int, list[str]] = {job: [] for job in jobs}
    for restart in range(4):
        for job in jobs:
            node = running(lab, job, restart)
            what = chance.choice(["fault", "fault", "node", "preempted"]) if restart < 3 else "fault"
            step = chance.choice(STEPS[2:])  # from the first entry in the journal on
            (plans / str(job)).write_text(f"kill {step}" if chance.random() < 0.6 else "")
            if chance.random() < 0.5:
                lab.run("scontrol", "update", f"JobId={job}", f"Comment=mine [slurm_ft n=0/3] {{}} {restart}")
            if what == "fault":
                lose_gpu(lab, job, restart)
            elif what == "node":
                lab.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power")
            else:
                lab.run("scontrol", "requeue", str(job))
            if what != "preempted" and len(bad[job]) < 3:
                bad[job].append(node)
        for job in jobs:
            lab.wait_for(lambda job=job: lab.job(job)["state"] != "COMPLETING", 60, f"COMPLETING of {job}")  # type: ignore[misc]
            (plans / str(job)).unlink(missing_ok=True)
        reconcile(lab)
        for job in jobs:  # Slurm's own wait of two minutes, for those that nobody had to release
            with suppress(SlurmCommandError):
                lab.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    for job in jobs:
        seen = lab.wait_job(job, "RUNNING", *ENDED)
        assert claim.spent(seen["comment"], seen["admin_comment"]) == len(bad[job]), (SEED, job)
        assert set(bad[job]) <= set(nodelist.expand(seen["exc_nodes"])), (SEED, job)
        assert len(entries(lab, job, Stage.REQUEUED)) <= 3


def test_a_healthy_attempt_is_never_touched(lab: Lab) -> None:
    """Reconcile, again and again, beside jobs that run, wait, are held and end well."""
    runs, held = submit(lab, *OPTED_IN), submit(lab, *OPTED_IN, "--hold")
    node = running(lab, runs, 0)
    lab.inject_xid(node, 0, 79, FELL_OFF)
    for _ in range(3):
        assert "nothing was left open" in reconcile(lab)
    assert (lab.job(runs)["state"], lab.job(held)["state"]) == ("RUNNING", "PENDING")
    lab.run("scancel", str(held))

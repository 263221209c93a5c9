"""A site as it really runs: SlurmUser is an unprivileged account, two users at once, a backup controller takes over."""

from __future__ import annotations

import pwd
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from steps import ATTEMPT, ENDED, FELL_OFF, OPTED_IN, decisions, end, running, settings, submit

from slurm_ft import journal
from slurm_ft.lab import Lab, LabSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
OTHER_USER = "daemon"
SLOW = "#!/bin/sh\nwhile [ -e {flag} ]; do /bin/sleep 0.1; done\nexec {hook}\n"

pytestmark = pytest.mark.skipif(
    "slurm" not in {account.pw_name for account in pwd.getpwall()}, reason="Debian's slurm packages made no account"
)


@pytest.fixture
def flag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file is there, node epilogs do not end."""
    return tmp_path_factory.mktemp("slow") / "wait"


@pytest.fixture
def lab(flag: Path) -> Iterator[Lab]:
    epilog = flag.with_name("epilog")
    epilog.write_text(SLOW.format(flag=flag, hook=ROOT / "epilog/node_epilog"))
    epilog.chmod(0o755)
    spec = LabSpec(nodes=4, slurm_user="slurm", backup=True, hooks={"epilog": epilog})
    with Lab(spec) as cluster:
        cluster.start_backup()
        yield cluster


def test_the_backup_controller_finishes_what_the_first_one_had_begun_and_serves_two_users(lab: Lab, flag: Path) -> None:
    first = submit(lab, *OPTED_IN)
    bad = {first: running(lab, first, 0)}
    second = lab.sbatch(ATTEMPT, *OPTED_IN, f"--exclude={bad[first]}", user=OTHER_USER)
    bad[second] = running(lab, second, 0)
    flag.touch()
    lab.inject_xid(bad[first], 0, 79, FELL_OFF)
    end(lab, first, 0, 1)
    lab.wait_for(lambda: journal.entries(settings(lab).state_dir, first), 20, "the first controller's note of the end")
    wait_until_saved(lab)
    lab.kill_controller()
    flag.unlink()
    lab.wait_for(lambda: lab.run("squeue", "-h", timeout_s=30), 60, "the backup controller's answer")
    reconcile(lab)
    assert running(lab, first, 1) != bad[first]
    reconcile(lab)
    found = lab.job(first)
    assert (found["restarts"], found["comment"]) == ("1", f"[slurm_ft n=1/3 ex={bad[first]} cause=xid79]")
    assert [entry["rule"] for entry in decisions(lab, first)] == ["hardware_fault"]

    lab.inject_xid(bad[second], 0, 79, FELL_OFF)
    end(lab, second, 0, 1)
    assert running(lab, second, 1) != bad[second]
    lab.wait_for(lambda: "n=1/3" in lab.job(second)["comment"], 20, "the count of the second user's job")
    for job in (first, second):
        end(lab, job, 1, 0)
        assert lab.wait_job(job, *ENDED)["state"] == "COMPLETED"
    assert (settings(lab).state_dir / journal.FILE_NAME).owner() == "slurm"


def wait_until_saved(lab: Lab) -> None:
    """slurmctld writes its state behind by some seconds; what it has not written is lost with it."""
    state, ended = lab.base / "state" / "slurmctld" / "job_state", time.time()
    lab.wait_for(lambda: state.exists() and state.stat().st_mtime > ended, 30, "the saved state")


def reconcile(lab: Lab) -> None:
    """As the timer does on whichever machine is the controller, as SlurmUser."""
    lab.run(str(lab.command), "reconcile", user="slurm", env={"SLURM_FT_CONFIG": str(lab.layout.config)})

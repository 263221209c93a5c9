"""Finished jobs that slurmctld has forgotten, from a real slurmdbd with a real MariaDB."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from accounting import accounting, missing
from steps import OPTED_IN, end, lose_gpu, make_healthy, running, submit

from slurm_ft.lab import Lab, LabSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

FORGETS = ("MinJobAge=2", "AccountingStoreFlags=job_comment")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    if absent := missing():
        pytest.skip(f"{', '.join(absent)} not installed: tools/setup.sh does it, but not for other releases of Slurm")
    with tempfile.TemporaryDirectory(prefix="slurm_ft-dbd-") as name:
        base = Path(name) / "lab"
        Path(name).chmod(0o755)  # the lab's user reads its slurm.conf
        with (
            accounting(Path(name), base / "run" / "munge.sock") as lines,
            Lab(LabSpec(nodes=3, base=base, slurm_conf=(*lines, *FORGETS))) as cluster,
        ):
            yield cluster


def status(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**lab.environment(), "SLURM_FT_CONFIG": str(lab.base / "etc" / "slurm_ft.yaml")}
    return subprocess.run(
        [str(lab.command), "status", *arguments], env=environment, capture_output=True, text=True, check=False
    )


def forgotten(lab: Lab, job: int) -> bool:
    """slurmctld looks every 30 seconds for jobs to forget."""
    listed = lab.run("squeue", "-h", "-t", "all", "-o", "%A").split()
    return str(job) not in listed and bool(lab.run("sacct", "-n", "-X", "-a", "-o", "End", "-j", str(job)).strip())


def test_a_job_that_slurmctld_has_forgotten_still_tells_its_story(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--job-name=a|b")
    bad = lose_gpu(lab, job, 0)
    good = running(lab, job, 1)
    end(lab, job, 1, 0)
    lab.wait_for(partial(forgotten, lab, job), 150, f"slurmctld having forgotten job {job}")

    page = status(lab, str(job))
    assert page.returncode == 0, page.stderr
    assert f"job {job} a|b of {lab.spec.user}: Completed; 1 of 3 failovers spent; excluded {bad}" in page.stdout
    assert f"restart 0: on {bad}" in page.stdout
    assert "hardware xid79" in page.stdout
    assert f"restart 1: on {good}" in page.stdout

    listed = status(lab, "--since", "now-1hour", "--json")
    (found,) = [one for one in json.loads(listed.stdout)["jobs"] if one["raw_id"] == job]
    assert (found["state"], found["failovers"], found["restarts"], found["nodes"]) == ("Completed", 1, 1, good)
    assert found["attempts"][0]["waited"] is not None
    make_healthy(lab)


def test_without_since_and_for_running_jobs_accounting_is_not_asked(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN)
    running(lab, job, 0)
    (row,) = status(lab, "-h", "--since", "now-1hour", "-t", "R", "-o", "jobid,state").stdout.splitlines()
    assert row.split() == [str(job), "Running"]
    end(lab, job, 0, 0)


def test_a_database_that_does_not_answer_costs_a_note_and_no_hang(lab: Lab) -> None:
    config: dict[str, Any] = {"SLURM_CONF": str(lab.shared / "elsewhere.conf")}
    text = lab.slurm_conf.read_text()
    port = next(line for line in text.splitlines() if line.startswith("AccountingStoragePort="))
    Path(config["SLURM_CONF"]).write_text(text.replace(port, "AccountingStoragePort=1"))
    settings = (lab.base / "etc" / "slurm_ft.yaml").read_text().replace(str(lab.slurm_conf), config["SLURM_CONF"])
    path = lab.shared / "elsewhere.yaml"
    path.write_text(settings)
    path.chmod(0o644)
    began = time.monotonic()
    done = subprocess.run(
        [str(lab.command), "status", "-h", "--since", "now-1hour"],
        env={**lab.environment(), **config, "SLURM_FT_CONFIG": str(path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "finished jobs: `sacct" in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - began < 60  # one command's bound is 10 s

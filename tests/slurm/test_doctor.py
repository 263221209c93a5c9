"""The doctor on a real cluster: it changes nothing, and its canary goes all the way and leaves all as it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from steps import idle, make_healthy

from slurm_ft.lab import Lab, LabSpec


def doctor(lab: Lab, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON, as somebody on the lab's machine gets them."""
    done = ask(lab, "--json", *arguments)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


DOCTOR = (sys.executable, "-m", "slurm_ft.cli.main", "doctor")


def environment(lab: Lab) -> dict[str, str]:
    return {
        **os.environ,
        "SLURM_CONF": str(lab.slurm_conf),
        "SLURM_FT_CONFIG": str(lab.layout.config),
        "SLURM_FT_RUN_DIR": str(lab.layout.run / "slurm_ft"),
    }


def ask(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (*DOCTOR, *arguments)
    return subprocess.run(command, env=environment(lab), capture_output=True, text=True, timeout=240, check=False)


def failing(told: dict[str, Any]) -> list[str]:
    return [f"{one['stage']}: {one['what']}" for one in told["findings"] if one["level"] == "fail"]


def cluster_now(lab: Lab) -> str:
    return lab.run("scontrol", "-o", "show", "job") + lab.run("sinfo", "-N", "-h", "-O", "NodeList,StateLong,Reason")


def test_a_lab_is_well_and_the_doctor_changes_nothing(lab: Lab) -> None:
    make_healthy(lab)
    before = cluster_now(lab)
    code, told = doctor(lab)
    assert (failing(told), code) == ([], 0)
    assert cluster_now(lab) == before
    assert told["roles"] == ["controller", "node"]
    stages = list(dict.fromkeys(one["stage"] for one in told["findings"]))
    whole = ["config", "slurm", "hooks", "sensors", "verdict", "decision", "records", "services", "alerts"]
    assert stages == whole


def test_a_canary_goes_all_the_way_and_leaves_the_node_in_service(lab: Lab) -> None:
    make_healthy(lab)
    code, told = doctor(lab, "--canary", "n2", "--here", "--yes")
    assert (failing(told), code) == ([], 0)
    said = "\n".join(one["what"] for one in told["findings"])
    assert "n2 is drained after" in said
    assert "[slurm_ft n=1/3 ex=n2 cause=xid79]" in said
    assert "n2 is excluded for it" in said
    assert "and completed after" in said
    assert "nothing is broken" in said  # the line in the kernel log says that it is a canary's
    lab.wait_for(lambda: idle(lab, "n2"), 60, "n2 being idle")
    assert not lab.run("squeue", "-h", "--states=R,CG,PD")


def test_a_node_that_slurm_does_not_know_fails(lab: Lab) -> None:
    make_healthy(lab)
    code, told = doctor(lab, "--node", "nope")
    assert code == 3
    assert "slurm: Slurm knows no node nope" in failing(told)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_canary_that_a_signal_ends_is_cleared_away(lab: Lab, number: signal.Signals) -> None:
    make_healthy(lab)
    command = (*DOCTOR, "--canary", "n2", "--here", "--yes")
    with subprocess.Popen(command, env=environment(lab), stdout=subprocess.PIPE, text=True) as canary:
        assert canary.stdout is not None
        said = ""
        while "n2 is drained after" not in said:
            said = canary.stdout.readline()
            assert said
        canary.send_signal(number)
        rest = canary.stdout.read()
    assert canary.returncode in (3, 128 + number), rest  # the second while it prints
    lab.wait_for(lambda: idle(lab, "n2"), 60, "n2 being idle")
    assert not lab.run("squeue", "-h", "--states=R,CG,PD")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("n2", "--here"), "Say --yes"),
        (("n9", "--here", "--yes"), "Slurm knows no node n9"),
        (("n2", "--yes"), "--here"),
        (("n2", "--here", "--yes", "--user", "no-such-user"), "Name somebody who may submit"),
    ],
)
def test_a_canary_asks_first(lab: Lab, arguments: tuple[str, ...], said: str) -> None:
    done = ask(lab, "--canary", *arguments)
    assert done.returncode == 1
    assert said in done.stderr


def test_a_site_whose_epilog_is_missing_is_told_by_both() -> None:
    with Lab(LabSpec(nodes=2, hooks={"epilog": None})) as lab:
        code, told = doctor(lab)
        assert code == 3
        assert any("Epilog is not set: no node judges a failed job" in line for line in failing(told))
        code, told = doctor(lab, "--canary", "n1", "--here", "--yes")
        assert code == 3
        assert any("n1 is not drained, and the job is over" in line for line in failing(told))
        lab.wait_for(lambda: idle(lab, "n1"), 60, "n1 being idle")
        assert not lab.run("squeue", "-h", "--states=R,CG,PD")


def test_a_node_takes_jobs_again_after_a_canary_although_its_log_has_the_line() -> None:
    with Lab(LabSpec(nodes=2, config={"prolog_gate": "act"})) as lab:
        code, told = doctor(lab, "--canary", "n1", "--here", "--yes", "--user", lab.spec.user)
        assert (failing(told), code) == ([], 0)
        job = lab.sbatch("#!/bin/sh\n", "--nodelist=n1", "--gres=gpu:2", "--output=/dev/null")
        assert lab.wait_job(job, "COMPLETED")["restarts"] == "0"
        lab.wait_for(lambda: idle(lab, "n1"), 60, "n1 being idle")

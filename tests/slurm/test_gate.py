"""The Prolog's gate, without nohold_on_prolog_fail: no job starts on a GPU that needs a repair, none stays held."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from steps import ENDED, FELL_OFF, OPTED_IN, decisions, end, lose_gpu, make_healthy, running, submit

from slurm_ft.failover import ledger
from slurm_ft.lab import Lab, LabSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

HOLDING = "SchedulerParameters=sched_min_interval=0,sched_interval=1,batch_sched_delay=0,bf_interval=1"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(nodes=2, slurm_conf=(HOLDING,), config={"prolog_gate": "act"})) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    """Every test begins with idle nodes and leaves no job behind."""
    yield
    make_healthy(lab)


def break_both_gpus(lab: Lab, node: str, code: int = 79) -> None:
    for gpu in (0, 1):
        lab.inject_xid(node, gpu, code, FELL_OFF)


def test_a_job_is_refused_by_a_broken_node_and_starts_elsewhere_uncounted(lab: Lab) -> None:
    break_both_gpus(lab, "n1")
    job = submit(lab, *OPTED_IN)
    assert running(lab, job, 1) == "n2"
    assert not (lab.shared / f"{job}.log").read_text().count("attempt 0")
    state, reason, _ = lab.node("n1")
    assert state.startswith("drain")
    assert reason.startswith("slurm_ft: hardware gate:xid79 gpu ")
    found = lab.job(job)
    assert found["comment"] in ("[slurm_ft]", "[slurm_ft n=0/3 cause=gate:xid79]")
    history = ledger.read(found["admin_comment"])
    assert history is not None
    assert [(attempt.cause, attempt.counted) for attempt in history.attempts] == [("gate:xid79", False)]
    assert [entry["rule"] for entry in decisions(lab, job)] == ["refused_by_gate"]
    lose_gpu(lab, job, 1)
    lab.wait_for(lambda: "n=1/3" in lab.job(job)["comment"], 20, "the count of a real failover")


def test_a_configuration_with_an_older_date_switches_the_gate_on(lab: Lab) -> None:
    """rsync, cp -p and packages keep the dates of files."""
    config = lab.layout.config
    on = config.read_text()
    config.write_text(on.replace("prolog_gate: act\n", ""))
    lab.wait_job(lab.sbatch("#!/bin/sh\nexit 0\n", *OPTED_IN[1:]), *ENDED)
    config.write_text(on)
    os.utime(config, (1_000_000_000, 1_000_000_000))
    break_both_gpus(lab, "n1")
    assert running(lab, submit(lab, *OPTED_IN), 1) == "n2"


def test_a_refused_job_that_did_not_ask_for_failover_is_not_left_held(lab: Lab) -> None:
    break_both_gpus(lab, "n1")
    job = submit(lab, "--comment=mine", *OPTED_IN[1:])
    assert running(lab, job, 1) == "n2"
    assert lab.job(job)["comment"] == "mine"


def test_a_node_that_somebody_returned_to_service_is_trusted(lab: Lab) -> None:
    job = submit(lab, *OPTED_IN, "--nodelist=n1")
    lose_gpu(lab, job, 0)
    lab.wait_node("n1", "drained")
    lab.run("scancel", str(job))
    lab.run("scontrol", "update", "NodeName=n1", "State=RESUME")
    again = submit(lab, *OPTED_IN, "--nodelist=n1")
    assert running(lab, again, 0) == "n1"


def test_a_program_s_own_error_closes_no_gate(lab: Lab) -> None:
    break_both_gpus(lab, "n1", code=31)
    job = submit(lab, *OPTED_IN, "--nodelist=n1")
    assert running(lab, job, 0) == "n1"


def test_in_observe_the_job_starts_and_the_log_says_so(lab: Lab) -> None:
    before = lab.layout.config.read_text()
    lab.layout.config.write_text(before.replace("prolog_gate: act", "prolog_gate: observe"))
    try:
        break_both_gpus(lab, "n1")
        job = submit(lab, *OPTED_IN, "--nodelist=n1")
        assert running(lab, job, 0) == "n1"
        assert "a GPU needs a repair: xid79" in lab.log_of("slurm_ft")
        assert lab.node("n1")[1] == ""
        end(lab, job, 0, 0)
        assert lab.wait_job(job, *ENDED)["state"] == "COMPLETED"
    finally:
        lab.layout.config.write_text(before)

"""The Prolog's gate: which kernel logs close it, and what becomes of the refused job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft.config import Config, Gate, Mode, parse
from slurm_ft.failover import node_record
from slurm_ft.node import gate, gate_release, repair_mark
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord, JobUpdate

ENVIRON = {"SLURMD_NODENAME": "n1", "SLURM_CLUSTER_NAME": "c", "SLURM_JOB_ID": "12", "SLURM_JOB_GPUS": "0"}
BOOT = "6,1,0,-;Linux version 6.1"
OFF_BUS = "3,100,100000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
REPAIRED = f"13,101,110000000,-;{repair_mark.text(ENVIRON)}"


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = FakeSlurm(node_records={"n1": node("n1", "mixed")})
    monkeypatch.setattr(CommandLine, "of", lambda _: fake)
    return fake


@pytest.fixture
def config(tmp_path: Path) -> Config:
    inventory = {"n1": ("0000:3b:00.0", "0000:5e:00.0")}
    return Config(
        mode=Mode.ACT,
        prolog_gate=Gate.ACT,
        kernel_log=tmp_path / "kmsg",
        gpu_inventory=inventory,
        nvml=False,
        log_file=tmp_path / "log",
    )


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        ([], False),
        ([OFF_BUS], True),
        ([OFF_BUS, REPAIRED], False),
        ([OFF_BUS, REPAIRED, OFF_BUS.replace("100000000", "120000000")], True),
        ([OFF_BUS, REPAIRED.replace("node=n1", "node=n2")], True),
        ([OFF_BUS.replace("3b", "5e")], False),  # another job's GPU
        ([OFF_BUS.replace("79,", "31,")], False),  # a program's own error
        ([REPAIRED.replace("13,", "0,"), OFF_BUS], True),
    ],
)
def test_faults_since_the_last_drain_that_drain_a_node_close_it(
    slurm: FakeSlurm, config: Config, tmp_path: Path, lines: list[str], refused: bool
) -> None:
    (tmp_path / "kmsg").write_text("\n".join([BOOT, *lines]) + "\n")
    environ = ENVIRON | {"SLURM_FT_RUN_DIR": str(tmp_path)}
    assert gate.run(environ, config) == (gate.REFUSED if refused else 0)
    assert slurm.node_records["n1"].draining is refused
    if refused:
        (verdict,) = node_record.in_reason(slurm.node_records["n1"].reason, "n1")
        assert (verdict.cause, verdict.raw_id, verdict.attempt) == ("gate:xid79", 12, 0)


def test_while_failover_is_paused_the_gate_stays_open(slurm: FakeSlurm, config: Config, tmp_path: Path) -> None:
    (tmp_path / "kmsg").write_text(f"{BOOT}\n{OFF_BUS}\n")
    slurm.set_node("n1", comment="[slurm_ft.brake paused 100: root]")
    assert gate.run(ENVIRON | {"SLURM_FT_RUN_DIR": str(tmp_path)}, config) == 0
    assert slurm.changes == []


def test_a_log_that_cannot_be_read_lets_the_job_start(slurm: FakeSlurm, config: Config) -> None:
    assert gate.run(ENVIRON, config) == 0
    assert slurm.changes == []


@pytest.mark.parametrize("mode", [Gate.OFF, Gate.OBSERVE])
def test_nothing_is_refused_unless_it_acts(slurm: FakeSlurm, config: Config, tmp_path: Path, mode: Gate) -> None:
    (tmp_path / "kmsg").write_text(f"{BOOT}\n{OFF_BUS}\n")
    environ = ENVIRON | {"SLURM_FT_RUN_DIR": str(tmp_path)}
    assert gate.run(environ, replace(config, prolog_gate=mode)) == 0
    assert slurm.changes == []


def test_a_bare_off_is_a_value_of_the_gate() -> None:
    assert parse("prolog_gate: off\n").prolog_gate is Gate.OFF
    assert parse("prolog_gate: observe\n").prolog_gate is Gate.OBSERVE


@pytest.fixture
def requeued(slurm: FakeSlurm, job_record: JobRecord) -> FakeSlurm:
    slurm.job_records["12"] = replace(job_record, state="PENDING", restarts=1, reason="BeginTime")
    return slurm


@pytest.mark.parametrize("held", [True, False])
def test_a_refused_job_starts_at_once_and_slurms_own_hold_goes(requeued: FakeSlurm, config: Config, held: bool) -> None:
    requeued.set_job("12", reason="launch failed requeued held" if held else "BeginTime")
    gate_release.run(ENVIRON, replace(config, node_reuse_delay=0.0))
    assert requeued.changes == [("release_hold", "12")] * held + [("update_job", "12", JobUpdate(start_now=True))]


@pytest.mark.parametrize("reason", ["JobHeldUser", "JobHeldAdmin"])
def test_the_hold_of_a_person_stays(requeued: FakeSlurm, config: Config, reason: str) -> None:
    requeued.set_job("12", reason=reason)
    gate_release.run(ENVIRON, replace(config, node_reuse_delay=0.0))
    assert "release_hold" not in [call[0] for call in requeued.changes]


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED", "FAILED"])
def test_a_job_that_slurm_may_not_requeue_is_left_alone(requeued: FakeSlurm, config: Config, state: str) -> None:
    requeued.set_job("12", state=state, restarts=0)
    gate_release.run(ENVIRON, config)
    assert requeued.changes == []

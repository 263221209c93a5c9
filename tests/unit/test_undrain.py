"""`slurm-ft undrain`: only drains of ours, and only after the checks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft import config as site
from slurm_ft.cli import main
from slurm_ft.config import Config
from slurm_ft.failover import node_record
from slurm_ft.model import NodeVerdict
from slurm_ft.node import attempt_file, repair_mark
from slurm_ft.node.check import NodeCheck
from slurm_ft.node.return_check import unproven
from slurm_ft.sensors import dcgm
from slurm_ft.slurm.cli import CommandLine

BOOT = "6,1,0,-;Linux version 6.1"
OFF_BUS = "3,100,100000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
DRAINED = f"13,101,110000000,-;{repair_mark.text({'SLURMD_NODENAME': 'n1', 'SLURM_CLUSTER_NAME': 'c'})}"


@pytest.fixture
def slurm(fault: NodeVerdict) -> FakeSlurm:
    ours = node("n1", "idle+drain", node_record.add("", fault))
    return FakeSlurm(node_records={"n1": ours, "n2": node("n2", "idle+drain", "bad fan"), "n3": node("n3")})


@pytest.fixture(autouse=True)
def place(tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings = Config(
        kernel_log=tmp_path / "kmsg", state_dir=tmp_path, gpu_inventory={"n1": ("0000:3b:00.0",)}, nvml=False
    )
    monkeypatch.setattr(site, "load", lambda: settings)
    monkeypatch.setattr(CommandLine, "of", lambda _: slurm)
    monkeypatch.setattr(dcgm, "DCGMI", str(tmp_path / "dcgmi"))
    monkeypatch.setattr("slurm_ft.sensors.nvml.installed", lambda: False)
    monkeypatch.setenv(attempt_file.RUN_DIR_VARIABLE, str(tmp_path))
    log(tmp_path, OFF_BUS, DRAINED)
    return tmp_path


def log(place: Path, *lines: str) -> None:
    (place / "kmsg").write_text("\n".join([BOOT, *lines]) + "\n")


def undrain(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main.main(["undrain", *arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_a_node_without_new_faults_is_returned(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = undrain(capsys, "n1", "--here")
    assert code == 0, out
    assert "drained for xid79 (job 12.0), NVIDIA says reboot the node (RESTART_BM)" in out
    assert "returned n1 to service" in out
    assert slurm.changes == [("resume_node", "n1")]


def test_a_return_that_nothing_proves_is_warned_of(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_ft.cli.undrain.boot_time", lambda: 1000.0)  # the fault is of 2000.5
    code, out = undrain(capsys, "n1", "--here")
    assert code == 0
    assert "warning  n1 has not been rebooted since xid79, for which NVIDIA says reboot the node (RESTART_BM)" in out
    assert "warning  nothing looked at the GPUs of n1" in out


def test_a_reboot_and_a_look_leave_no_doubt(fault: NodeVerdict) -> None:
    looked = NodeCheck((), ("nvml (1 GPUs)", "kernel log since the drain"))
    assert unproven("n1", looked, [fault], booted=2001.0) == []
    assert len(unproven("n1", looked, [fault, replace(fault, raw_id=13)], booted=2000.0)) == 1
    assert unproven("n1", looked, [replace(fault, cause="xid31_repeated")], booted=2000.0) == []


def test_a_fault_since_the_drain_keeps_it_drained(
    place: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    log(place, OFF_BUS, DRAINED, OFF_BUS.replace("100000000", "120000000"))
    code, out = undrain(capsys, "n1", "--here")
    assert (code, slurm.changes) == (3, [])
    assert "fault    kernel log: Xid 79" in out
    assert undrain(capsys, "n1", "--here", "--force")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("n2", "--here"), "drained by somebody else: bad fan"),
        (("n2", "--force"), "drained by somebody else: bad fan"),
        (("n3", "--here"), "is not drained"),
        (("n9",), "knows no node n9"),
        (("n1",), "cannot be checked from"),
    ],
)
def test_what_is_refused(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str
) -> None:
    code, out = undrain(capsys, *arguments)
    assert (code, slurm.changes) == (1, [])
    assert why in out


def test_a_reason_that_somebody_has_changed_meanwhile_stays(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.before["cluster"] = lambda: slurm.set_node("n1", reason="mine")
    assert "stays as it is" in undrain(capsys, "n1", "--here")[1]
    assert slurm.changes == []

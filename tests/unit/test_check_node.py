"""`slurm-ft check-node`: NVML through the stub, and a fake dcgmi."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node
from nvml_stub import FIRST, SECOND, NvmlStub
from test_dcgm import DIAG_3, DIAG_4, DISCOVERY

from slurm_ft import config as site
from slurm_ft.cli import main
from slurm_ft.config import Config
from slurm_ft.node import attempt_file
from slurm_ft.sensors import dcgm
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord

PASSED = {"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "software", "results": [
    {"entity_group": "GPU", "entity_id": 0, "status": "Pass"}]}]}]}}  # fmt: skip


@pytest.fixture
def slurm(job_record: JobRecord) -> FakeSlurm:
    return FakeSlurm.of(replace(job_record, state="FAILED"), node("n1", "idle+drain"))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, slurm: FakeSlurm, nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> Path:
    nvml_stub.answers()
    settings = Config(gpu_inventory={"n1": (f"{FIRST}.0", f"{SECOND}.0")}, state_dir=tmp_path)
    monkeypatch.setattr(site, "load", lambda: settings)
    monkeypatch.setattr(CommandLine, "of", lambda _: slurm)
    monkeypatch.setenv(attempt_file.RUN_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setattr(dcgm, "DCGMI", str(tmp_path / "dcgmi"))
    (tmp_path / "attempts").mkdir()
    return tmp_path


def dcgmi(place: Path, diag: object) -> None:
    text = diag if isinstance(diag, str) else json.dumps(diag)
    (place / "diag").write_text(text)
    (place / "discovery").write_text(DISCOVERY)
    (place / "dcgmi").write_text(f'#!/bin/sh\necho "$*" >>{place}/calls\nexec cat "{place}/$1"\n')
    (place / "dcgmi").chmod(0o755)


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main.main(["check-node", "--node", "n1", *arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_a_healthy_node(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dcgmi(place, PASSED)
    code, out = check(capsys)
    assert (code, out) == (
        0, "node n1: nothing wrong was found; ran: nvml (2 GPUs), dcgmi diag -r 1 (1 results passed)\n"
    )  # fmt: skip
    assert (place / "calls").read_text().splitlines()[0] == "diag -r 1 -j"


@pytest.mark.parametrize("diag", [DIAG_3, DIAG_4], ids=["3.x", "4.x"])
def test_a_fault_of_the_diagnosis(place: Path, capsys: pytest.CaptureFixture[str], diag: object) -> None:
    dcgmi(place, diag)
    code, out = check(capsys, "--json")
    found = json.loads(out)
    assert (code, found["healthy"]) == (3, False)
    assert any(line["level"] == "fault" and line["check"] == "dcgmi diag" for line in found["lines"])


def test_a_setting_is_no_fault(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dcgmi(place, DIAG_4)
    out = json.loads(check(capsys, "--json")[1])
    assert [line["level"] for line in out["lines"] if "ersistence" in line["text"]] == ["note"]


def test_a_recovery_action_from_any_time_is_a_fault(nvml_stub: NvmlStub, capsys: pytest.CaptureFixture[str]) -> None:
    nvml_stub.answers("field_230 1 0 1 1")
    code, out = check(capsys)
    assert code == 3
    assert f"fault    nvml: NVML: GPU {SECOND}" in out
    assert "note     dcgmi diag: " in out


def test_a_gpu_that_is_not_there_is_suspect(nvml_stub: NvmlStub, capsys: pytest.CaptureFixture[str]) -> None:
    nvml_stub.answers("handle 1 6")
    code, out = check(capsys)
    assert code == 3
    assert f"suspect  nvml: NVML: GPU {SECOND}: NVML knows no GPU at this address" in out


def test_an_nvml_that_hangs_is_bounded(
    place: Path, nvml_stub: NvmlStub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_ft.node.check.NVML_S", 0.5)
    nvml_stub.answers("hang - init")
    code, out = check(capsys)
    assert code == 3
    assert "no answer within 0.5 s" in out


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING"])
def test_a_node_with_a_job_is_refused(
    place: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    dcgmi(place, PASSED)
    slurm.set_job("12", state=state)
    code, out = check(capsys)
    assert code == 1
    assert "node n1 has jobs: 12" in out
    assert not (place / "calls").exists()


def test_a_note_of_the_prolog_refuses_too(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "attempts" / "n1.13").write_text("marker\nboot\n1.0\n0\n0\n")
    assert check(capsys)[0] == 1


def test_a_slurm_that_does_not_answer_refuses(
    place: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    dcgmi(place, PASSED)
    slurm.refused.add("jobs")
    assert check(capsys)[0] == 1
    assert not (place / "calls").exists()


@pytest.mark.parametrize("answer", ["", "Error: unable to connect", "{}"])
def test_a_diagnosis_that_says_nothing_is_not_healthy(
    place: Path, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    dcgmi(place, answer)
    code, out = check(capsys)
    assert code == 3
    assert "suspect  dcgmi diag: dcgmi diag gave" in out

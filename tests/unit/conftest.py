"""Values that many unit tests start from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from nvml_stub import NvmlStub, build

from slurm_ft.model import Domain, ExitStatus, JobEnd, JobKey, NodeVerdict
from slurm_ft.slurm.protocol import JobRecord

# Speed is measured in bench/, on machines that are busy with other things too.
settings.register_profile("slurm_ft", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("slurm_ft")


@pytest.fixture
def job_end() -> JobEnd:
    """A two-node attempt of an opted-in job that ended 1:0."""
    return JobEnd(
        key=JobKey(12, "12", 0),
        exit=ExitStatus(1, 0),
        reason="NonZeroExitCode",
        nodes="n[1-2]",
        node_names=("n1", "n2"),
        down_nodes=(),
        silent_nodes=(),
        started=1000.0,
        ended=2000.0,
        restarts_now=0,
        opted_in=True,
        requeueable=True,
        limit=3,
    )


@pytest.fixture
def fault() -> NodeVerdict:
    """A hardware verdict of n1 on the first attempt of job 12."""
    return NodeVerdict(
        "n1", 12, 0, Domain.HARDWARE, "xid79", "0000:3b:00", 2000.5, "NVRM: Xid (PCI:0000:3b:00): 79, fell off"
    )


def a_job() -> JobRecord:
    """Job 12 while its nodes are completing."""
    return JobRecord(
        raw_id=12,
        address="12",
        name="train",
        user="alice",
        partition="main",
        state="COMPLETING",
        reason="NonZeroExitCode",
        nodes="",
        restarts=0,
        requeue=True,
        batch=True,
        exit_code=1,
        exit_signal=0,
        submitted=900.0,
        started=1000.0,
        ended=2000.0,
        stdout="/home/alice/train.log",
        comment="team=vision [slurm_ft]",
        admin_comment="",
    )


@pytest.fixture
def job_record() -> JobRecord:
    """Job 12 while its nodes are completing."""
    return a_job()


@pytest.fixture(scope="session")
def nvml_libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where the stub libraries of a new and of an old driver lie."""
    if shutil.which("gcc") is None:
        pytest.fail("the stub of NVIDIA's library needs gcc: tools/setup.sh installs it")
    directory = tmp_path_factory.mktemp("nvml")
    return {"new": build(directory / "new"), "old": build(directory / "old", "-DOLD_DRIVER")}


@pytest.fixture
def nvml_stub(nvml_libraries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    """A node with two GPUs in good health, as the real nvidia-ml-py sees it."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_libraries["new"]))
    stub = NvmlStub(tmp_path / "nvml_script")
    monkeypatch.setenv("NVML_STUB", str(stub.script))
    return stub

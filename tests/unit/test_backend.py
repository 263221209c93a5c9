"""Which backend is taken, and pyslurm's behind a module of its shape (that of pyslurm 24.11 and 25.11)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from slurm_ft.config import Backend, Config
from slurm_ft.errors import SlurmCommandError
from slurm_ft.slurm.backend import backend
from slurm_ft.slurm.bindings import Bindings
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobUpdate


class RPCError(Exception):
    pass


JOB = {
    "id": 5, "name": "train", "user_name": "alice", "partition": "main", "state": "COMPLETING", "array_id": None,
    "heterogeneous_id": None, "state_reason": "NonZeroExitCode", "allocated_nodes": "n[1-2]", "requeue_count": 1,
    "is_requeueable": True, "is_batch_job": True, "exit_code": 1, "exit_code_signal": 0, "submit_time": 900,
    "start_time": 1000, "end_time": 1100, "standard_output": "/home/alice/out", "comment": "[slurm_ft]",
    "admin_comment": None, "batch_host": "n1", "required_nodes": None, "reservation": None,
    "num_nodes": 2, "time_limit": 60, "account": None, "qos": "normal",
}  # fmt: skip


class FakeJob:
    """Static `load`, and a bare `Job(id)` to act on, as in pyslurm."""

    known: ClassVar[dict[int, dict[str, Any]]] = {}
    done: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self, job_id: int) -> None:
        self.id = job_id

    @staticmethod
    def load(job_id: int) -> Any:
        if job_id not in FakeJob.known:
            raise RPCError("Invalid job id specified")
        return SimpleNamespace(**FakeJob.known[job_id])

    def requeue(self) -> None:
        FakeJob.done.append(("requeue", self.id))
        raise RPCError("Socket timed out on send/recv operation")

    def modify(self, changes: Any) -> None:
        FakeJob.done.append(("modify", self.id, vars(changes)))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("pyslurm")
    module.__version__ = "22.5.3"  # type: ignore[attr-defined]
    module.RPCError = RPCError  # type: ignore[attr-defined]
    module.Job = FakeJob  # type: ignore[attr-defined]
    module.JobSubmitDescription = SimpleNamespace  # type: ignore[attr-defined]
    node = SimpleNamespace(name="n1", state="IDLE+DRAIN*", reason="None", comment=None)
    module.Nodes = SimpleNamespace(load=lambda: {"n1": node})  # type: ignore[attr-defined]
    FakeJob.known, FakeJob.done = {5: dict(JOB)}, []
    monkeypatch.setitem(sys.modules, "pyslurm", module)
    return module


@pytest.fixture
def config(tmp_path: Path) -> Config:
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho slurm-wlm 22.05.8\n")
    squeue.chmod(0o755)
    for name in ("scontrol", "scancel", "sinfo"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/said\n')
        (tmp_path / name).chmod(0o755)
    return Config(slurm_bin=tmp_path, backend=Backend.AUTO)


@pytest.fixture
def slurm(library: ModuleType, config: Config) -> Bindings:
    return Bindings(library, CommandLine.of(config))


def test_auto_takes_the_pyslurm_of_this_release(library: ModuleType, config: Config) -> None:
    assert isinstance(backend(config, pytest.fail), Bindings)


def test_auto_passes_over_the_pyslurm_of_another_release_without_a_word(library: ModuleType, config: Config) -> None:
    library.__version__ = "25.11.2"  # type: ignore[attr-defined]
    assert isinstance(backend(config, pytest.fail), CommandLine)


@pytest.mark.parametrize("broken", [None, ModuleType("pyslurm")])
def test_a_pyslurm_that_is_demanded_and_cannot_be_used_is_complained_of_and_costs_nothing(
    config: Config, broken: ModuleType | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyslurm", broken)  # None: the import fails
    said: list[str] = []
    demanded = Config(slurm_bin=config.slurm_bin, backend=Backend.PYSLURM)
    assert isinstance(backend(demanded, said.append), CommandLine)
    assert "pyslurm cannot be imported" in said[0]
    assert "backend: cli" in said[0]


def test_a_job_record(slurm: Bindings) -> None:
    job = slurm.job("5")
    assert job is not None
    assert (job.raw_id, job.state, job.reason, job.nodes) == (5, "COMPLETING", "NonZeroExitCode", "n[1-2]")
    assert (job.restarts, job.exit_code, job.admin_comment, job.reservation) == (1, 1, "", "")
    assert (job.submitted, job.started, job.ended) == (900.0, 1000.0, 1100.0)


def test_an_end_to_come_is_none(slurm: Bindings) -> None:
    FakeJob.known[5]["end_time"] = 4e9
    job = slurm.job("5")
    assert job is not None
    assert job.ended is None


def test_a_job_that_slurm_forgot_is_none_and_any_other_error_is_one(slurm: Bindings) -> None:
    assert slurm.job("6") is None
    with pytest.raises(SlurmCommandError, match="timed out") as caught:
        slurm.requeue("5")
    assert caught.value.busy


def test_a_node_record(slurm: Bindings) -> None:
    (node,) = slurm.nodes("n[1-4]")
    assert (node.name, node.states, node.reason, node.comment) == ("n1", {"idle", "drain"}, "", "")


def test_what_pyslurm_can_express_goes_through_it_and_the_rest_through_the_commands(
    slurm: Bindings, config: Config
) -> None:
    slurm.update_job("5", JobUpdate(excluded_nodes="n[1-2]", comment="[slurm_ft n=1/3]"))
    assert FakeJob.done == [("modify", 5, {"comment": "[slurm_ft n=1/3]", "excluded_nodes": ["n1", "n2"]})]
    slurm.update_job("5", JobUpdate(comment=""))
    slurm.update_job("5_3", JobUpdate(comment="x"))
    slurm.update_job("5", JobUpdate(start_now=True))
    said = (config.slurm_bin / "said").read_text().splitlines()
    assert said == ["update JobId=5 Comment=", "update JobId=5_3 Comment=x", "update JobId=5 StartTime=now"]

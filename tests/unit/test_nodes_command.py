"""`slurm-ft nodes --json`: the table for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft import config as site
from slurm_ft.cli import main
from slurm_ft.config import Config
from slurm_ft.failover import node_record
from slurm_ft.model import NodeVerdict
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord


def test_a_drained_node_with_its_fault(
    tmp_path: Path,
    job_record: JobRecord,
    fault: NodeVerdict,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    slurm = FakeSlurm.of(job_record, node("n1", "idle+drain", node_record.add("", fault)), node("n2"))
    monkeypatch.setattr(site, "load", lambda: Config(state_dir=tmp_path))
    monkeypatch.setattr(CommandLine, "of", lambda _: slurm)
    assert main.main(["nodes", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (one,) = said["nodes"]
    assert (one["node"], one["drained"], one["since"], one["action"]) == ("n1", True, 2000.5, "RESTART_BM")
    assert (one["faults"][0]["cause"], one["faults"][0]["raw_id"], one["repeat_offender"]) == ("xid79", 12, False)
    assert said["held"] is None
    assert "journal" in said["unseen"][0]

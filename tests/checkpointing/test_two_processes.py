"""Two real processes over gloo: one checkpoint of both, and each rank's own generators come back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_ft.vendor.datastates._engine.paths import committed

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("two_ranks.py")


def run(directory: Path, steps: int, die_at: int, attempt: str) -> list[str]:
    """Return what the two ranks printed. A gloo abort at exit after all is done does not count."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "slurm_ft" / "vendor")}
    command = [sys.executable, str(WORKER), str(directory)]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(steps), str(die_at), attempt], env=environment, stdout=subprocess.PIPE, text=True
        )
        for rank in (0, 1)
    ]
    try:
        return [process.communicate(timeout=250)[0].strip() for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


@pytest.mark.timeout(800)  # six starts of torch, on a busy machine
def test_two_ranks_resume_bit_for_bit_from_one_checkpoint(tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    whole = run(tmp_path / "whole", 7, 0, "1")
    run(tmp_path / "broken", 7, 4, "1")
    step, newest = committed(tmp_path / "broken" / "out")[0]
    content = json.loads((newest / "MANIFEST.json").read_bytes())
    assert (step, content["world_size"]) == (4, 2)
    assert {name: file["rank"] for name, file in content["files"].items()} == {
        "model.pt": 0,
        "optimizer.pt": 0,
        "step.pt": 0,
        "rng-0.pt": 0,
        "rng-1.pt": 1,
    }
    again = run(tmp_path / "broken", 7, 0, "2")
    assert [line.split()[0] for line in again] == ["4", "4"]
    assert [line.split()[1] for line in again] == [line.split()[1] for line in whole]
    assert whole[0] != whole[1]

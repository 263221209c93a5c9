"""ZeRO-2 in bfloat16, saved at every step and copied late, many times over: a prototype once stopped between two steps.

`make soak` runs it; not part of the tests because of its length. SOAK_ROUNDS says how often.
"""

from __future__ import annotations

import os
from pathlib import Path

import launching
import pytest
from test_resume_identical import zero

STEPS = 4
HOUR = 3600


@pytest.mark.timeout(HOUR)
def test_no_round_stops_or_tears_a_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "LAUNCH_SECONDS", HOUR)
    hook = {"save_steps": 1, "copy": "lazy", "back_pressure": "wait", "debug_hash": True, "keep_last": 0}
    configuration = {**zero(2), "bf16": {"enabled": True}}
    arguments = {"max_steps": STEPS, "bf16": True, "save_strategy": "no", "eval_strategy": "no"}
    rounds = [
        {
            "name": f"round{number}",
            "output_dir": str(tmp_path / f"round{number}"),
            "hook": hook,
            "arguments": arguments,
            "deepspeed": configuration,
        }
        for number in range(int(os.environ.get("SOAK_ROUNDS", "50")))
    ]
    reports = launching.scenario(launching.torchrun(), tmp_path / "reports", rounds)
    for entry in rounds:
        committed = list(Path(entry["output_dir"], "concurrent_checkpoint").glob("checkpoint-*/COMMITTED"))
        assert len(committed) == STEPS, entry["name"]
        assert reports[entry["name"]][0]["weights"] == reports["round0"][0]["weights"], entry["name"]

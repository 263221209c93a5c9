"""Stock DeepSpeed's ZeRO-2 in bfloat16, saved at every step behind a late writer, many times over.

`make soak` runs it; not part of the tests because of its length. SOAK_ROUNDS says how often.
"""

from __future__ import annotations

import os
from pathlib import Path

import launching
import pytest
from test_stock_deepspeed import assert_committed, configuration, train

HOUR = 3600


@pytest.mark.timeout(HOUR)
def test_no_round_stops_or_tears_a_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "LAUNCH_SECONDS", HOUR)
    rounds = [
        {
            "name": f"round{number}",
            "directory": str(tmp_path / f"round{number}"),
            "steps": 4,
            "save_every": 1,
            "config": configuration(2, bf16=True),
            "late": 0.2 if number == 0 else 0,
        }
        for number in range(int(os.environ.get("SOAK_ROUNDS", "50")))
    ]
    reports = train(tmp_path / "reports", rounds)
    for entry in rounds:
        assert_committed(Path(entry["directory"]))
        assert len(list(Path(entry["directory"]).glob("global_step*/COMMITTED"))) == entry["steps"], entry["name"]
        assert reports[entry["name"]][0]["weights"] == reports["round0"][0]["weights"], entry["name"]

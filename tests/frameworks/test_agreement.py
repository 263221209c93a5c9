"""Two ranks save at the same step, whatever decides on it: a clock, or a signal that one of them got."""

from __future__ import annotations

import json
from pathlib import Path

import launching
import pytest
from test_resume_identical import curve, zero

LATE = {"save_steps": 100, "keep_last": 0, "back_pressure": "wait"}  # beyond the training's end
LEGACY = {**zero(2), "checkpoint": {"checkpoint_serialization": False}}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agreement")


@pytest.fixture(scope="module")
def reports(directory: Path) -> dict[str, list[dict]]:
    legacy = [f"{directory}/legacy/checkpoint-4", f"{directory}/legacy/concurrent_checkpoint/checkpoint-4"]
    runs = [
        {"name": "stock"},
        {"name": "timed", "hook": {**LATE, "save_seconds": 0.001}},
        {"name": "noticed", "hook": LATE, "notice": [1, 5]},
        {
            "name": "legacy",
            "hook": {**LATE, "save_steps": 4},
            "deepspeed": LEGACY,
            "checks": [["differences", *legacy]],
        },
    ]
    for run in runs:
        run["output_dir"] = str(directory / run["name"])
    return launching.scenario(launching.torchrun(), directory / "reports", runs)


@pytest.mark.parametrize("name", ["timed", "noticed"])
def test_the_training_is_the_one_without_us(name: str, reports: dict[str, list[dict]]) -> None:
    for ours, stock in zip(reports[name], reports["stock"], strict=True):
        assert curve(ours) == curve(stock)
        assert ours["weights"] == stock["weights"]


def test_rank_zeros_clock_decides_for_both(reports: dict[str, list[dict]], directory: Path) -> None:
    assert steps_of_two_ranks(directory / "timed") == set(range(1, 13))


def test_a_notice_to_one_rank_makes_both_save_at_the_next_step(reports: dict[str, list[dict]], directory: Path) -> None:
    """Told in step 5: the boundary behind it announces step 6. The 12th is the end of the training."""
    assert steps_of_two_ranks(directory / "noticed") == {6, 12}


def test_deepspeeds_old_serialization_is_written_as_deepspeed_writes_it(reports: dict[str, list[dict]]) -> None:
    assert list(reports["legacy"][0]["checks"].values()) == [[]]


def steps_of_two_ranks(output_dir: Path) -> set[int]:
    """Return the committed steps; each must have files of both ranks."""
    steps = set()
    for path in (output_dir / "concurrent_checkpoint").glob("checkpoint-*/MANIFEST.json"):
        manifest = json.loads(path.read_text())
        assert {entry["rank"] for entry in manifest["files"].values()} == {0, 1}
        steps.add(manifest["step"])
    return steps

"""The library's word that it has given up saving, found in the job's log while training goes on."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from test_run_command import Place

import slurm_ft.launch.saving
from slurm_ft.launch.saving import DISABLED
from slurm_ft.vendor.datastates._engine import engine

LINE = "[2026-07-10 01:50:09,939] [CRITICAL] [engine.py:294:_count_failure] "
SAID = "CONCURRENT CHECKPOINTS ARE DISABLED after 3 failures in a row"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def run(place: Place, text: str, **more: str) -> str:
    """Return the job's log of a training that is this shell text."""
    log = place.directory / "job.log"
    with log.open("ab") as file:
        command = place.command("sh", "-c", text)
        subprocess.run(command, env=place.environ(**more), stdout=file, stderr=file, check=True)
    return log.read_text()


def test_the_words_are_the_engines() -> None:
    source = Path(engine.__file__).read_text(encoding="utf-8")
    (said,) = [line.strip().strip('"') for line in source.splitlines() if "CHECKPOINTS ARE DISABLED" in line]
    assert DISABLED.search(said % 3)


def test_it_is_told_and_noted_and_training_goes_on(place: Place) -> None:
    vendor = place.directory / "vendor"
    text = f"echo step 1; echo '{LINE}{SAID}; the training goes on' >&2; sleep 1; echo training complete"
    assert "training complete" in run(place, text, CHECKPOINT_VENDOR=str(vendor))
    told = f"slurm_ft: ALERT: checkpointing_disabled: {SAID}: training goes on without checkpoints"
    give_up = time.monotonic() + 30  # the process beside the training may end after it
    while told not in (place.directory / "job.log").read_text() or place.record()["alert"] != "checkpointing_disabled":
        assert time.monotonic() < give_up
        time.sleep(0.05)


@pytest.mark.parametrize("vendor", ["", "/v"])
def test_a_training_that_saves_is_left_alone(place: Place, vendor: str) -> None:
    assert "ALERT" not in run(place, "echo step 1; echo checkpoint of step 1 failed", CHECKPOINT_VENDOR=vendor)


def test_without_the_library_its_words_mean_nothing(place: Place) -> None:
    assert "ALERT" not in run(place, f"echo '{SAID}'")


def test_a_look_is_taken_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """While the training runs, not only at its end."""

    class Running:
        looks = 0

        def ended_within(self, seconds: float) -> bool:
            assert seconds == slurm_ft.launch.saving.PAUSE
            self.looks += 1
            if self.looks == 3:
                with log.open("a") as file:
                    file.write(f"{LINE}{SAID}; the training goes on\n")
            return False

    log = tmp_path / "log"
    log.write_text("")
    reader = slurm_ft.launch.saving.LogReader
    monkeypatch.setattr(slurm_ft.launch.saving, "LogReader", lambda: reader(log))
    training = Running()
    assert slurm_ft.launch.saving.SavingWatch(training).gave_up() == SAID  # type: ignore[arg-type]
    assert training.looks == 3

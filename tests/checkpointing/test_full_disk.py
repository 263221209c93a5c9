"""A disk that is full: the checkpoint is lost, the older one stays, the training goes on and saving recovers."""

from __future__ import annotations

import os
import subprocess

import pytest
from small_training import load, save

from slurm_ft.vendor.datastates._engine.paths import committed
from slurm_ft.vendor.datastates._engine.status import Outcome


@pytest.fixture
def small_disk(tmp_path):
    """40 MB, room for two checkpoints of 15 MB."""
    if os.geteuid():
        pytest.skip("mounting a small tmpfs needs root")
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def test_a_full_disk_costs_that_checkpoint_and_no_other(training, make_engine, small_disk):
    engine = make_engine(root=small_disk / "root", keep_last=1)
    save(engine, training)
    load(engine, 2)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(20_000_000))
    training.step()
    assert save(engine, training) is Outcome.STARTED
    training.step()
    assert engine.wait(20)
    assert "No space left on device" in engine.status.last_error
    assert [step for step, _ in committed(engine.root)] == [2]
    assert not list(engine.root.glob(".t*"))
    ballast.unlink()
    assert save(engine, training) is Outcome.STARTED
    assert engine.wait(20)
    assert engine.status.failures_in_a_row == 0
    assert [step for step, _ in committed(engine.root)] == [4]


def test_a_disk_that_is_full_when_the_saver_runs(training, make_engine, small_disk):
    """The framework's own small files meet it first."""
    engine = make_engine(root=small_disk / "root")

    def write(capture):
        (capture.directory / "config.json").write_bytes(bytes(60_000_000))

    assert engine.save(2, write) is Outcome.FAILED
    assert "No space left on device" in engine.status.last_error
    assert not list(engine.root.glob("*"))

"""Fixtures of the checkpoint tests: a training under way and engines that save it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch
from small_training import Training

from slurm_ft.vendor.datastates._engine.engine import Engine
from slurm_ft.vendor.datastates._engine.settings import parse
from slurm_ft.vendor.datastates._engine.writer import Workers

torch.set_num_threads(1)


@pytest.fixture
def training():
    """One step in: the optimizer has state."""
    found = Training()
    found.step()
    return found


@pytest.fixture
def make_engine(tmp_path, training):
    """Make engines below `tmp_path/root`, and let each see one more step; they are closed in the end."""
    made = []

    def make(root: Path | None = None, ranks=None, **config: object) -> Engine:
        engine = Engine(root or tmp_path / "root", parse({"keep_last": 0, "drain_timeout": 20, **config}), ranks)
        made.append(engine)
        training.step()
        return engine

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def slow_workers(monkeypatch):
    """Make the background work so late that the next optimizer step always comes first."""
    move = Workers._move

    def later(self, *claim):
        time.sleep(0.05)
        move(self, *claim)

    monkeypatch.setattr(Workers, "_move", later)


@pytest.fixture
def held_workers(monkeypatch):
    """Hold the background work back until the event that this returns is set."""
    move, go = Workers._move, threading.Event()

    def when_told(self, *claim):
        assert go.wait(60)
        move(self, *claim)

    monkeypatch.setattr(Workers, "_move", when_told)
    yield go
    go.set()

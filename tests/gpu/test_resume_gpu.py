"""On a real GPU: a resumed training gives, bit for bit, what the uninterrupted one gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gpu_training import Training, on_cpu
from small_training import differences

from slurm_ft.vendor.datastates import Checkpoints

SAVED, LAST = 4, 9


def objects(training: Training) -> dict[str, object]:
    return {"model": training.model, "optimizer": training.optimizer}


def test_a_loop_of_ones_own_resumes_bit_for_bit(tmp_path: Path) -> None:
    """Dropout and the data draw from the GPU's generator: its state comes along."""
    training = Training()
    with Checkpoints(tmp_path, save_steps=SAVED, keep_last=0, back_pressure="wait") as checkpoints:
        for step in range(1, LAST + 1):
            training.step()
            checkpoints.save(step, objects(training))
    expected = on_cpu(training.state())
    (tmp_path / f"checkpoint-{SAVED * 2}").rename(tmp_path / "later")
    resumed = Training(seed=5)
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.load(objects(resumed)) == SAVED
        resumed.step(LAST - SAVED)
    assert differences(expected, on_cpu(resumed.state())) == []


def test_a_trainer_resumes_bit_for_bit(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the Trainer's part needs transformers and accelerate")
    pytest.importorskip("accelerate", reason="the Trainer's part needs transformers and accelerate")
    import scenario  # noqa: PLC0415 - it imports transformers

    arguments = {"use_cpu": False, "save_strategy": "no", "bf16": True, "full_determinism": True}
    base = {"output_dir": str(tmp_path), "arguments": arguments, "hook": {"save_steps": 3, "keep_last": 0}}
    whole = scenario.train({**base, "name": "whole"}, -1)
    again = scenario.train({**base, "name": "again", "resume": True, "environment": {"CKPT_LAST_STEP": "6"}}, -1)
    assert torch.cuda.is_available()
    assert again["first_step"] == 7
    assert again["weights"] == whole["weights"]
    assert [entry for entry in again["history"] if "train_loss" not in entry] == [
        entry for entry in whole["history"] if "train_loss" not in entry
    ]

"""A small training, its state, and how to compare two of them: what the checkpoint tests share."""

from __future__ import annotations

import torch

from slurm_ft.vendor.datastates._engine.engine import Engine
from slurm_ft.vendor.datastates._engine.status import Outcome

WIDTH = 320  # a layer of 400 KiB: enough that parameters are copied late, and that files have several chunks


class Training:
    """Dropout, a scheduler and AdamW on the CPU; `digest` of all that a resume must restore."""

    def __init__(self, seed: int = 0, layers: int = 12) -> None:
        torch.manual_seed(seed)
        blocks = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Dropout(0.1)) for _ in range(layers)]
        self.model = torch.nn.Sequential(*blocks)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.5)
        self.done = 0

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.optimizer.zero_grad()
            self.model(torch.randn(4, WIDTH)).pow(2).mean().backward()
            self.optimizer.step()
            self.scheduler.step()
            self.done += 1

    def state(self) -> dict[str, object]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "rng": torch.get_rng_state(),
            "step": self.done,
        }


def snapshot_of(value: object) -> object:
    """Copy tensors, so that later steps cannot change what is compared."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: snapshot_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [snapshot_of(item) for item in value]
    return value


def differences(left: object, right: object, name: str = "") -> list[str]:
    """Return the names of the values that differ."""
    if isinstance(left, torch.Tensor):
        return [] if torch.equal(left, right) else [name]
    if isinstance(left, dict):
        return [found for key in left for found in differences(left[key], right[key], f"{name}.{key}")]
    if isinstance(left, list | tuple):
        return [f for i, (a, b) in enumerate(zip(left, right, strict=True)) for f in differences(a, b, f"{name}.{i}")]
    return [] if left == right else [name]


def save(engine: Engine, training: Training, name: str = "state.pt") -> Outcome:
    """Save the training's state as one torch file; return the outcome."""
    return engine.save(training.done, lambda capture: capture.torch_save(training.state(), capture.directory / name))


def load(engine: Engine, step: int, name: str = "state.pt") -> object:
    """Wait for a save and read it back with torch's own loader."""
    assert engine.wait(20)
    assert engine.status.last_error == ""
    return torch.load(engine.root / f"checkpoint-{step}" / name, weights_only=True)

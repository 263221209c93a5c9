"""A small training on the GPU, and ways to make its queue of work visible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from slurm_ft.vendor.datastates._engine.engine import Engine
from slurm_ft.vendor.datastates._engine.settings import parse

WIDTH = 1024
LONG = 2_000_000_000  # cycles that a kernel idles: about a second, far more than any step here


class Training:
    """Linear layers, dropout and fused AdamW: 12 bytes of state for each parameter, all on the GPU."""

    def __init__(self, seed: int = 0, layers: int = 8) -> None:
        torch.manual_seed(seed)
        blocks = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Dropout(0.1)) for _ in range(layers)]
        self.model = torch.nn.Sequential(*blocks).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01, fused=True)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.optimizer.zero_grad()
            self.model(torch.randn(8, WIDTH, device="cuda")).pow(2).mean().backward()
            self.optimizer.step()

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}


def on_cpu(value: Any) -> Any:
    """Return a copy that later steps cannot change; waits for the GPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {key: on_cpu(item) for key, item in value.items()}
    return [on_cpu(item) for item in value] if isinstance(value, list | tuple) else value


def make_engine(root: Path, training: Training, **config: object) -> Engine:
    """Return an engine that has seen the optimizer step, twice: parameters and state are known."""
    engine = Engine(root, parse({"keep_last": 0, **config}))
    training.step(2)
    torch.cuda.synchronize()
    return engine


def save(engine: Engine, training: Training, step: int = 1) -> None:
    engine.save(step, lambda capture: capture.torch_save(training.state(), capture.directory / "state.pt"))


def load(engine: Engine, step: int = 1, name: str = "state.pt") -> Any:
    assert engine.wait(60)
    assert engine.status.last_error == ""
    return torch.load(engine.root / f"checkpoint-{step}" / name, weights_only=True, map_location="cpu")


def delay_copies(engine: Engine, cycles: int = LONG) -> None:
    """Put an idling kernel at the head of the side stream: the copies that follow come late."""
    device = engine._devices.of(torch.device("cuda", torch.cuda.current_device()))
    with torch.cuda.stream(device._stream):
        torch.cuda._sleep(cycles)

"""A training loop of one's own with concurrent checkpoints: killed at any moment, it goes on as if nothing had been.

    PYTHONPATH=$CHECKPOINT_VENDOR python examples/train_own_loop.py --output-dir out

Start it again with the same directory: it resumes from the newest valid checkpoint, in the middle of an epoch too.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from datastates import Checkpoints

WIDTH, BATCH, SAMPLES = 256, 8, 96


class ResumableSampler:
    """Shuffles each epoch by its number, and remembers how far it is."""

    def __init__(self, samples: int, seed: int = 0) -> None:
        self.samples, self.seed = samples, seed
        self.epoch = self.position = 0

    def batches(self, size: int) -> Iterator[torch.Tensor]:
        """Return batches of indices without an end, from the current position on."""
        while True:
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(self.samples, generator=generator)
            while self.position + size <= self.samples:
                self.position += size
                yield order[self.position - size : self.position]
            self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        """Return the position."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to a position."""
        self.epoch, self.position = state["epoch"], state["position"]


def digest(model: torch.nn.Module) -> str:
    """Return what two equal models have in common, bit for bit."""
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())).hexdigest()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description="Train with concurrent checkpoints.")
    parser.add_argument("--output-dir", type=Path, default=Path("output"))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-steps", type=int, default=5)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = torch.randn(SAMPLES, WIDTH)
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Dropout(0.1)) for _ in range(8)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sampler = ResumableSampler(SAMPLES)
    state: dict[str, Any] = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.steps),
        "sampler": sampler,
        "best": float("inf"),
    }
    with Checkpoints(arguments.output_dir, save_steps=arguments.save_steps) as checkpoints:
        start = checkpoints.load(state)
        print(f"from step {start}", flush=True)
        batches = sampler.batches(BATCH)
        for step in range(start + 1, arguments.steps + 1):
            batch = data[next(batches)]
            loss = (model(batch) - batch).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state["scheduler"].step()
            state["best"] = min(state["best"], loss.item())
            print(f"step {step} loss {loss.item():.9f}", flush=True)
            checkpoints.save(step, state)
            if checkpoints.stopping:
                break
    print(f"best {state['best']:.9f} weights {digest(model)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Trains with DeepSpeed's own loop, as a specification says, on every rank that a launcher starts.

    torchrun --nproc-per-node 2 deepspeed_loop.py SPECIFICATION.json

The specification is {"report": DIRECTORY, "runs": [RUN, ...]}. The only thing that a run has of ours is
`"datastates_ckpt"` in its DeepSpeed configuration. Data follow from the step, so that a resumed run sees the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import cpu_only
import deepspeed
import torch

WIDTH = 128


def main() -> None:
    specification = json.loads(Path(sys.argv[1]).read_text())
    cpu_only.mend_torch()
    cpu_only.mend_deepspeed()
    deepspeed.init_distributed("gloo")
    torch.set_num_threads(1)
    for run in specification["runs"]:
        report = train(run)
        Path(specification["report"], f"{run['name']}-{os.environ['RANK']}.json").write_text(json.dumps(report))


def train(run: dict) -> dict:
    """Train to step `steps`, with a checkpoint behind each multiple of `save_every`, from `resume` if it is given."""
    torch.manual_seed(1)
    norm = torch.nn.LayerNorm if "bf16" in run["config"] else torch.nn.BatchNorm1d  # torch's CPU kernel mixes no dtypes
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), norm(WIDTH)) for _ in range(4)]
    engine, *_ = deepspeed.initialize(model=torch.nn.Sequential(*layers), config=run["config"])
    if run.get("late"):
        write_late(run["late"])
    if run.get("unfenced"):
        engine.checkpoint_engine.ckpt_engine._files.fence.settle = lambda: None
    if run.get("resume"):
        path, _ = engine.load_checkpoint(run["resume"])
        assert path is not None, f"nothing to resume from in {run['resume']}"
    start, losses = engine.global_steps, []
    while engine.global_steps < run["steps"]:
        losses.append(step(engine))
        if engine.global_steps % run.get("save_every", 1 << 30) == 0:
            engine.save_checkpoint(run["directory"], client_state={"note": "mine"})
    weights = hashlib.sha256()
    for tensor in trained(engine):
        weights.update(tensor.detach().float().numpy().tobytes())
    engine.destroy()
    return {"start": start, "losses": losses, "weights": weights.hexdigest()}


def step(engine) -> float:
    generator = torch.Generator().manual_seed(1000 * engine.global_steps + int(os.environ["RANK"]))
    batch = torch.randn(4, WIDTH, generator=generator).to(next(engine.module.parameters()).dtype)
    loss = engine(batch).pow(2).mean()
    engine.backward(loss)
    engine.step()
    return loss.item()


def trained(engine) -> list[torch.Tensor]:
    """Return the parameters and what this rank's optimizer has. DeepSpeed saves the buffers of rank 0 only."""
    optimizer = engine.optimizer.optimizer
    states = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    partitions = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    return [*engine.module.parameters(), *partitions, *states]


def write_late(seconds: float) -> None:
    """Let the background begin so late that the next optimizer step always comes first."""
    from datastates._engine.writer import Workers

    move = Workers._move

    def late(self, *claim):
        time.sleep(seconds)
        move(self, *claim)

    Workers._move = late


if __name__ == "__main__":
    main()

"""One rank of two: trains a DDP model over gloo with concurrent checkpoints. Started twice by test_two_processes.py."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import torch
from datastates import Checkpoints
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

WIDTH = 256


def main() -> None:
    directory, rank, steps, die_at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{directory}/store-{sys.argv[5]}", rank=rank, world_size=2
    )
    torch.manual_seed(rank)  # every rank draws its own dropout and data
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Dropout(0.1)) for _ in range(4)]
    model = torch.nn.Sequential(*layers)
    trained = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    state = {"model": model, "optimizer": optimizer}
    with Checkpoints(directory / "out", save_steps=2, back_pressure="wait") as checkpoints:
        start = checkpoints.load(state)
        for step in range(start + 1, steps + 1):
            trained(torch.randn(4, WIDTH)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            checkpoints.save(step, state)
            if step == die_at and checkpoints.wait(60):
                distributed.barrier()
                sys.stdout.flush()
                return
    weights = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    print(f"{start} {hashlib.sha256(weights + torch.get_rng_state().numpy().tobytes()).hexdigest()}", flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


main()

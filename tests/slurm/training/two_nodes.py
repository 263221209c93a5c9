"""Two ranks on two nodes that save concurrently; rank 0 is on the second node. Usage: two_nodes.py OUTPUT_DIR STEPS"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from datastates import Checkpoints
from torch import distributed, nn

directory, steps = Path(sys.argv[1]), int(sys.argv[2])
rank = 1 - int(os.environ["SLURM_PROCID"])
distributed.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters())
state = {"model": model.module, "optimizer": optimizer}
with Checkpoints(directory, save_steps=5, keep_last=0, back_pressure="wait") as checkpoints:
    for step in range(1, steps + 1):
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        checkpoints.save(step, state)
    checkpoints.wait(60)
    last = directory / f"checkpoint-{steps}" / "VALIDATION.json"
    give_up = time.monotonic() + 60
    while not last.exists() and time.monotonic() < give_up:
        time.sleep(0.1)
print(f"rank {rank} on {os.environ['SLURMD_NODENAME']} complete", flush=True)

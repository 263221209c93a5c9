"""A loop of one's own: plain PyTorch, alone or under torchrun. Saves `ckpt_{step}.pth`, loads CKPT_LAST_PATH.

Usage: own_loop.py OUTPUT_DIR STEPS
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from lost_gpu import die_if_lost
from torch import distributed, nn

directory, steps = Path(sys.argv[1]), int(sys.argv[2])
rank = int(os.environ.get("RANK", "0"))
torch.manual_seed(1)
model: nn.Module = nn.Linear(64, 64)
if "RANK" in os.environ:
    distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
done = 0
if "CKPT_LAST_STEP" in os.environ:
    state = torch.load(os.environ["CKPT_LAST_PATH"], weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    done = state["step"]
    print(f"rank {rank} starts behind {done}", flush=True)
while done < steps:
    die_if_lost(directory, "ckpt_*.pth")
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    done += 1
    time.sleep(0.1)
    if done % 5 == 0 and rank == 0:
        temporary = directory / f"tmp_{done}"
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": done}, temporary)
        temporary.replace(directory / f"ckpt_{done}.pth")
        print(f"saved {done}", flush=True)
if rank == 0:
    print(f"training complete: {done} steps", flush=True)

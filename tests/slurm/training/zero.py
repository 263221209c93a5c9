"""DeepSpeed's own loop with ZeRO-1, started by its launcher. Usage: zero.py OUTPUT_DIR STEPS"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path

import deepspeed
import torch
from lost_gpu import die_if_lost
from torch import nn

# Compiling DeepSpeed's operator for shared memory takes two minutes; gloo does without.
importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None

directory, steps = Path(sys.argv[-2]), int(sys.argv[-1])  # the launcher puts --local_rank first
torch.manual_seed(1)
model = nn.Linear(64, 64)
config = {
    "train_micro_batch_size_per_gpu": 8,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
rank = engine.global_rank
if "CKPT_LAST_STEP" in os.environ:
    path, _ = engine.load_checkpoint(directory)  # what its tracker `latest` names
    print(f"rank {rank} starts behind {engine.global_steps} ({Path(path).parent.name})", flush=True)
while engine.global_steps < steps:
    die_if_lost(directory, "global_step*")
    engine.backward(engine(torch.randn(8, 64)).square().mean())
    with torch.no_grad():
        engine.step()
    time.sleep(0.1)
    if engine.global_steps % 5 == 0:
        engine.save_checkpoint(directory)
        if rank == 0:
            print(f"saved {engine.global_steps}", flush=True)
if rank == 0:
    print(f"training complete: {engine.global_steps} steps", flush=True)

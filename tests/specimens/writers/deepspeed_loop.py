"""A training loop of one's own around a DeepSpeed engine, stage 0 to 3, on two ranks.

    torchrun --nproc-per-node 2 deepspeed_loop.py STAGE write SAVE_DIR
    torchrun --nproc-per-node 2 deepspeed_loop.py STAGE resume SAVE_DIR

`resume` lets DeepSpeed read its own tracker, `SAVE_DIR/latest`.
"""

from __future__ import annotations

import json
import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from deepspeed import comm

SAVED_STEPS = (9, 10)
LAST_STEP = 12


def engine_of(stage):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    return engine


def step(engine):
    engine.backward(engine(torch.ones(1, 4)).sum())
    with torch.no_grad():  # ZeRO-1 and 2 fail without it on torch 2.13: "Output 0 of Split is a view"
        engine.step()


def main(stage, verb, save_dir):
    deepspeed.init_distributed("gloo")
    engine = engine_of(int(stage))
    first = 0
    if verb == "resume":
        path, state = engine.load_checkpoint(save_dir)
        first = engine.global_steps
        assert path is None or state["step"] == first, (path, state)
    while engine.global_steps < (SAVED_STEPS[-1] if verb == "write" else LAST_STEP):
        step(engine)
        if verb == "write" and engine.global_steps in SAVED_STEPS:
            engine.save_checkpoint(save_dir, client_state={"step": engine.global_steps})
    if comm.get_rank() == 0:
        print(json.dumps({"first_step": first, "last_step": engine.global_steps}))
    comm.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

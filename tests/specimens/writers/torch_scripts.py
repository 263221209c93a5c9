"""Scripts of one's own: files as the users' document has them, and torch's distributed checkpoint on two ranks.

python torch_scripts.py plain write OUTPUT_DIR
torchrun --nproc-per-node 2 torch_scripts.py dcp write OUTPUT_DIR
… resume OUTPUT_DIR        # loads $CKPT_LAST_PATH
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch import distributed
from torch.distributed import checkpoint as dcp
from torch.distributed.fsdp import fully_shard

SAVED = (9, 10)


def parts():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    return model, torch.optim.AdamW(model.parameters())


def one_step(model, optimizer):
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def plain(verb, output):
    model, optimizer = parts()
    if verb == "resume":
        checkpoint = torch.load(os.environ["CKPT_LAST_PATH"], weights_only=True)
        model.load_state_dict(checkpoint["net"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        return checkpoint["epoch"]
    output.mkdir()
    for epoch in range(1, SAVED[-1] + 1):
        one_step(model, optimizer)
        checkpoint = {"net": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        if epoch in SAVED:
            torch.save(checkpoint, output / f"ckpt_{epoch}.pth")
            torch.save(checkpoint["net"], output / f"ckpt_best_{epoch}.pth")
    return epoch


def sharded(verb, output):
    distributed.init_process_group("gloo")
    model, _ = parts()
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(1, SAVED[-1] + 1):
        one_step(model, optimizer)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        if verb == "write" and step in SAVED:
            dcp.save(state, checkpoint_id=output / f"step_{step}")
    if verb == "resume":
        state["step"] = 0
        dcp.load(state, checkpoint_id=os.environ["CKPT_LAST_PATH"])
    return state["step"]


def main(mode, verb, output_dir):
    step = {"plain": plain, "dcp": sharded}[mode](verb, Path(output_dir))
    if not distributed.is_initialized() or distributed.get_rank() == 0:
        print(json.dumps({"first_step": step if verb == "resume" else 0, "last_step": step}))
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

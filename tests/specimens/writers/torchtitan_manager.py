"""torchtitan's checkpoint manager on two ranks.

torchrun --nproc-per-node 2 torchtitan_manager.py write DUMP_FOLDER
torchrun --nproc-per-node 2 torchtitan_manager.py resume DUMP_FOLDER [--checkpoint.load_step=N]
"""

from __future__ import annotations

import json
import sys

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torchtitan.components.checkpointer.dcp import CheckpointManager

SAVED_STEPS = (9, 10)
OPTION = "--checkpoint.load_step"


class Progress:
    """The part of torchtitan's Trainer that is saved with the model."""

    def __init__(self):
        self.step = 0

    def state_dict(self):
        return {"step": torch.tensor(self.step)}

    def load_state_dict(self, state):
        self.step = int(state["step"])


def load_step(options):
    if not options:
        return -1
    name, _, value = options[0].partition("=")
    assert name == OPTION, options
    return int(value or options[1])


def main(verb, dump_folder, *options):
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = fully_shard(torch.nn.Linear(4, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    progress = Progress()
    if verb == "resume":
        one_step(model, optimizer)  # so that there is a state to load into
    manager = CheckpointManager(
        CheckpointManager.Config(enable=True, interval=1, keep_latest_k=0),
        dataloader=None,
        model_parts=[model],
        optimizers=optimizer,
        lr_schedulers=torch.optim.lr_scheduler.StepLR(optimizer, 1),
        states={"train_state": progress},
        sd_adapter=None,
        base_folder=dump_folder,
    )
    first = 0
    if verb == "resume":
        manager.load(load_step(options))
        first = progress.step
    while verb == "write" and progress.step < SAVED_STEPS[-1]:
        one_step(model, optimizer)
        progress.step += 1
        if progress.step in SAVED_STEPS:
            manager.save(progress.step)
    if distributed.get_rank() == 0:
        print(json.dumps({"first_step": first, "last_step": progress.step}))
    manager.close()
    distributed.destroy_process_group()


def one_step(model, optimizer):
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Accelerate's `save_state` under DDP, and its FSDP writers, on two ranks.

    torchrun --nproc-per-node 2 accelerate_states.py MODE write PROJECT_DIR
    torchrun --nproc-per-node 2 accelerate_states.py MODE resume PROJECT_DIR     # load_state($CKPT_LAST_PATH)

MODE is ddp, fsdp_sharded or fsdp_full. Accelerate refuses FSDP on a CPU, so these two modes call what `save_state`
calls, `save_fsdp_model` and `save_fsdp_optimizer`, on a `fully_shard` model, and write the rest as `save_state` does.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from accelerate import Accelerator, PartialState
from accelerate.checkpointing import save_accelerator_state
from accelerate.utils import (
    FullyShardedDataParallelPlugin,
    ProjectConfiguration,
    load_fsdp_model,
    load_fsdp_optimizer,
    save_fsdp_model,
    save_fsdp_optimizer,
)
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

SAVED_COUNTS = (9, 10)


def parts():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    loader = DataLoader(TensorDataset(torch.ones(64, 4)), batch_size=1)
    return model, loader


def optimizer_of(model):
    optimizer = torch.optim.AdamW(model.parameters())
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1)


def ddp(verb, project_dir):
    automatic = ProjectConfiguration(project_dir=project_dir, automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=automatic)
    model, loader = parts()
    model, loader, *rest = accelerator.prepare(model, loader, *optimizer_of(model))
    optimizer, scheduler = rest
    if verb == "resume":
        accelerator.load_state(os.environ["CKPT_LAST_PATH"])
        return optimizer.state_dict()["state"][0]["step"].item()
    for count, (batch,) in enumerate(loader, start=1):
        accelerator.backward(model(batch).sum())
        optimizer.step()
        scheduler.step()
        accelerator.project_configuration.iteration = count
        if count in SAVED_COUNTS:
            accelerator.save_state()
        if count == SAVED_COUNTS[-1]:
            return count
    raise AssertionError("the data ended early")


def fsdp(verb, project_dir, kind):
    distributed.init_process_group("gloo")
    PartialState(cpu=True)  # its logger asks it for the rank
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type=kind, cpu_ram_efficient_loading=False)
    process = SimpleNamespace(
        is_main_process=distributed.get_rank() == 0,
        process_index=distributed.get_rank(),
        num_processes=distributed.get_world_size(),
        is_fsdp2=True,
        wait_for_everyone=distributed.barrier,
        device=torch.device("cpu"),
        state=SimpleNamespace(),
    )
    model, loader = parts()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer, scheduler = optimizer_of(model)
    if verb == "resume":
        path = os.environ["CKPT_LAST_PATH"]
        optimizer_step(model, optimizer, scheduler)
        load_fsdp_model(plugin, process, model, path)
        load_fsdp_optimizer(plugin, process, optimizer, model, path)
        return optimizer.state_dict()["state"][0]["step"].item()
    for count in range(1, SAVED_COUNTS[-1] + 1):
        optimizer_step(model, optimizer, scheduler)
        if count in SAVED_COUNTS:
            path = Path(project_dir, "checkpoints", f"checkpoint_{count}")
            path.mkdir(parents=True, exist_ok=True)
            save_fsdp_model(plugin, process, model, str(path))
            save_fsdp_optimizer(plugin, process, optimizer, model, str(path))
            save_accelerator_state(
                str(path), [], [], [scheduler], [loader], process.process_index, count, save_on_each_node=False
            )
    return count


def optimizer_step(model, optimizer, scheduler):
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()


def main(mode, verb, project_dir):
    if mode == "ddp":
        step = ddp(verb, project_dir)
    else:
        kind = {"fsdp_sharded": "SHARDED_STATE_DICT", "fsdp_full": "FULL_STATE_DICT"}[mode]
        step = fsdp(verb, project_dir, kind)
    if distributed.get_rank() == 0:
        print(json.dumps({"first_step": int(step) if verb == "resume" else 0, "last_step": int(step)}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""VeRL's FSDP checkpoint manager on two ranks: a PPO actor, or the SFT trainer's flat directory.

    torchrun --nproc-per-node 2 verl_fsdp.py MODE write DEFAULT_LOCAL_DIR
    torchrun --nproc-per-node 2 verl_fsdp.py MODE resume DEFAULT_LOCAL_DIR [trainer.resume_mode=resume_path …]

MODE is ppo or sft. The manager is VeRL's own; what the PPO driver writes around it (data.pt and the tracker) and how
it chooses where to resume are the lines of RayPPOTrainer._save_checkpoint and _load_checkpoint, without Ray.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path, get_checkpoint_tracker_filename
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

SAVED_STEPS = (9, 10)


def manager():
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8,
            hidden_size=4,
            intermediate_size=4,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            max_position_embeddings=8,
            tie_word_embeddings=False,
        )
    )
    fully_shard(model, mesh=init_device_mesh("cpu", (distributed.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    return FSDPCheckpointManager(model, optimizer, scheduler)


def train_step(states):
    tokens = torch.ones(1, 4, dtype=torch.long)
    states.model(input_ids=tokens, labels=tokens).loss.backward()
    states.optimizer.step()
    states.optimizer.zero_grad()
    states.lr_scheduler.step()


def place(mode, folder):
    return folder / "actor" if mode == "ppo" else folder


def save(mode, states, root, step):
    folder = root / f"global_step_{step}"
    states.save_checkpoint(str(place(mode, folder)), global_step=step)
    if mode == "sft":
        torch.save({"_num_yielded": step}, folder / f"data_{distributed.get_rank()}.pt")
    elif distributed.get_rank() == 0:
        torch.save({"_num_yielded": step}, folder / "data.pt")
    distributed.barrier()
    if distributed.get_rank() == 0:
        with Path(get_checkpoint_tracker_filename(str(root))).open("w") as tracker:
            tracker.write(str(step))


def chosen_folder(root, options):
    given = dict(option.split("=", 1) for option in options)
    if given.get("trainer.resume_mode", "auto") == "auto":
        return find_latest_ckpt_path(str(root))
    assert given["trainer.resume_mode"] == "resume_path", given
    return given["trainer.resume_from_path"]


def main(mode, verb, local_dir, *options):
    distributed.init_process_group("gloo")
    states, root, first = manager(), Path(local_dir), 0
    train_step(states)
    if verb == "resume":
        folder = chosen_folder(root, options)
        if folder is not None:
            first = int(folder.split("global_step_")[-1])
            states.load_checkpoint(str(place(mode, Path(folder))))
            assert states.lr_scheduler.last_epoch == first, states.lr_scheduler.last_epoch
    else:
        for step in range(1, SAVED_STEPS[-1] + 1):
            if step > 1:
                train_step(states)
            if step in SAVED_STEPS:
                save(mode, states, root, step)
    if distributed.get_rank() == 0:
        print(json.dumps({"first_step": first, "last_step": first or SAVED_STEPS[-1]}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Stands for `python -m verl.trainer.main_ppo`, which needs Ray and GPUs: its options, VeRL's own checkpoint manager.

It knows no other options than VeRL has, and where it starts is VeRL's own choice from them (the writer's lines).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from lost_gpu import die_if_lost
from torch import distributed

options = dict(word.split("=", 1) for word in sys.argv[1:])
KNOWN = {"trainer.nnodes", "trainer.n_gpus_per_node", "trainer.default_local_dir", "trainer.resume_mode"}
KNOWN |= {"trainer.resume_from_path", "trainer.total_training_steps", "data.writers"}
if unknown := set(options) - KNOWN:
    raise SystemExit(f"Could not override {sorted(unknown)}")  # Hydra's own words
sys.path.insert(0, options["data.writers"])
import verl_fsdp  # noqa: E402

if (options["trainer.nnodes"], options["trainer.n_gpus_per_node"]) != ("1", "1"):
    raise SystemExit("this stand-in has one process")
os.environ |= {"RANK": "0", "WORLD_SIZE": "1"}
distributed.init_process_group("gloo")
root, states, done = Path(options["trainer.default_local_dir"]), verl_fsdp.manager(), 0
verl_fsdp.train_step(states)
resume = [f"{name}={value}" for name, value in options.items() if name.startswith("trainer.resume_")]
if folder := verl_fsdp.chosen_folder(root, resume):
    done = int(folder.split("global_step_")[-1])
    states.load_checkpoint(str(verl_fsdp.place("ppo", Path(folder))))
    print(f"Setting global step to {done}", flush=True)
    print(f"starts behind {done}", flush=True)
else:
    print("Training from scratch", flush=True)
while done < int(options["trainer.total_training_steps"]):
    die_if_lost(root, "global_step_*")
    verl_fsdp.train_step(states)
    done += 1
    time.sleep(0.1)
    if done % 5 == 0:
        verl_fsdp.save("ppo", states, root, done)
        print(f"saved {done}", flush=True)
print(f"training complete: {done} steps", flush=True)
distributed.destroy_process_group()

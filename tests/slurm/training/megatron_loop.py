"""A loop around megatron-core's torch_dist checkpoints, as Megatron-LM's own script takes them.

Usage: torchrun … megatron_loop.py WRITERS STEPS --save DIR --load DIR. WRITERS: where the specimens' writers are; what
is saved is theirs. The tracker decides where it starts, and what it says of that are Megatron-LM's own words.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from lost_gpu import die_if_lost
from torch import distributed

parser = argparse.ArgumentParser()
parser.add_argument("writers")
parser.add_argument("steps", type=int)
parser.add_argument("--save", type=Path, required=True)
parser.add_argument("--load", type=Path, required=True)
options = parser.parse_args()
sys.path.insert(0, options.writers)
import megatron_core  # noqa: E402

distributed.init_process_group("gloo")
megatron_core.run_on_cpu()
rank, done = distributed.get_rank(), 0
tracker = options.load / megatron_core.TRACKER
if tracker.exists():
    named = int(tracker.read_text())
    done, _ = megatron_core.load_dist(options.load / f"iter_{named:07d}", named)
    if rank == 0:
        print(f"  successfully loaded checkpoint from {options.load} [ t 1/2, p 1/1 ] at iteration {done}", flush=True)
        print(f"starts behind {done}", flush=True)
elif rank == 0:
    print("    will not load any checkpoints and will start from random", flush=True)
while done < options.steps:
    die_if_lost(options.save, "iter_*")
    distributed.barrier()
    done += 1
    time.sleep(0.1)
    if done % 5 == 0:
        megatron_core.save_dist(options.save / f"iter_{done:07d}", done)
        distributed.barrier()
        if rank == 0:
            (options.save / megatron_core.TRACKER).write_text(str(done))
            print(f"saved {done}", flush=True)
if rank == 0:
    print(f"training complete: {done} steps", flush=True)
distributed.destroy_process_group()

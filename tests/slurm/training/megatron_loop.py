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


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("writers")
    parser.add_argument("steps", type=int)
    parser.add_argument("--save", type=Path, required=True)
    parser.add_argument("--load", type=Path, required=True)
    return parser.parse_args()


def load(directory):
    """The iteration that the tracker names; 0 without one."""
    tracker = directory / megatron_core.TRACKER
    if not tracker.exists():
        say("    will not load any checkpoints and will start from random")
        return 0
    named = int(tracker.read_text())
    iteration, _ = megatron_core.load_dist(directory / f"iter_{named:07d}", named)
    say(f"  successfully loaded checkpoint from {directory} [ t 1/2, p 1/1 ] at iteration {iteration}")
    say(f"starts behind {iteration}")
    return iteration


def save(directory, iteration):
    megatron_core.save_dist(directory / f"iter_{iteration:07d}", iteration)
    distributed.barrier()
    if distributed.get_rank() == 0:
        (directory / megatron_core.TRACKER).write_text(str(iteration))
    say(f"saved {iteration}")


def say(text):
    if distributed.get_rank() == 0:
        print(text, flush=True)


if __name__ == "__main__":  # its writer starts processes that import this file
    given = options()
    sys.path.insert(0, given.writers)
    import megatron_core

    distributed.init_process_group("gloo")
    megatron_core.run_on_cpu()
    done = load(given.load)
    while done < given.steps:
        die_if_lost(given.save, "iter_*")
        distributed.barrier()
        done += 1
        time.sleep(0.1)
        if done % 5 == 0:
            save(given.save, done)
    say(f"training complete: {done} steps")
    distributed.destroy_process_group()

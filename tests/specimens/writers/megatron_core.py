"""Megatron-LM's checkpoints: `dist` (torch_dist, by megatron-core on two ranks) and `legacy` (the torch format).

    torchrun --nproc-per-node 2 megatron_core.py MODE write SAVE_DIR
    torchrun --nproc-per-node 2 megatron_core.py MODE resume SAVE_DIR

megatron-core has the writer of torch_dist; the training loop around it (tracker file, directory names, the state
dict's keys) is megatron/training/checkpointing.py of Megatron-LM, which no index carries, and is called here line by
line. The legacy format is nothing but `torch.save` of that state dict for each model parallel rank; MindSpeed-LLM
writes the same tree. `resume` reads the tracker as Megatron-LM does and loads what it names.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from torch import distributed

SAVED = (9, 10)
TRACKER = "latest_checkpointed_iteration.txt"


def arguments():
    return argparse.Namespace(
        tensor_model_parallel_size=2,
        pipeline_model_parallel_size=1,
        expert_model_parallel_size=1,
        world_size=2,
        data_parallel_size=1,
        use_distributed_optimizer=True,
        hidden_size=4,
    )


def state_at(iteration):
    """Return this rank's shares: of a weight of 4 x 4, and of its two Adam moments."""
    torch.manual_seed(iteration)
    rows = slice(2 * distributed.get_rank(), 2 * distributed.get_rank() + 2)
    return {name: torch.rand(4, 4)[rows].clone() for name in ("weight", "exp_avg", "exp_avg_sq")}


def common(iteration):
    return {
        "args": arguments(),
        "checkpoint_version": 3.0,
        "iteration": iteration,
        "opt_param_scheduler": {"num_steps": iteration, "max_lr": 1e-3},
        "num_floating_point_operations_so_far": 0,
    }


def sharded(iteration):
    from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor  # noqa: PLC0415

    rank, shares = distributed.get_rank(), state_at(iteration)
    rng = [{"torch_rng_state": torch.arange(8), "rng_tracker_states": {}}]
    return common(iteration) | {
        "model": {"weight": ShardedTensor.from_rank_offsets("model.weight", shares["weight"], (0, rank, 2))},
        "optimizer": {
            name: ShardedTensor.from_rank_offsets(f"optimizer.state.{name}.weight", shares[name], (0, rank, 2))
            for name in ("exp_avg", "exp_avg_sq")
        },
        "rng_state": ShardedObject("rng_state", rng, (2,), (rank,)),
    }


def save_dist(directory, iteration):
    from megatron.core import dist_checkpointing  # noqa: PLC0415

    directory.mkdir(parents=True, exist_ok=True)
    dist_checkpointing.save(sharded(iteration), str(directory))


def load_dist(directory, iteration):
    from megatron.core import dist_checkpointing  # noqa: PLC0415

    blank = sharded(0)
    loaded = dist_checkpointing.load(blank, str(directory))
    return loaded["iteration"], loaded["model"]["weight"]


def save_legacy(directory, iteration):
    rank, shares = distributed.get_rank(), state_at(iteration)
    place = directory / f"mp_rank_{rank:02d}"
    place.mkdir(parents=True, exist_ok=True)
    moments = {0: {torch.float32: {name: shares[name].flatten() for name in ("exp_avg", "exp_avg_sq")}}}
    torch.save(moments, place / "distrib_optim.pt")  # before the model's file
    rng = [{"torch_rng_state": torch.arange(8), "rng_tracker_states": {}}]
    model = {"language_model": {"weight": shares["weight"]}}
    optimizer = {"optimizer": {"param_groups": [{"step": iteration, "lr": 1e-3}]}}
    torch.save(
        common(iteration) | {"model": model, "optimizer": optimizer, "rng_state": rng}, place / "model_optim_rng.pt"
    )


def load_legacy(directory, iteration):
    place = directory / f"mp_rank_{distributed.get_rank():02d}"
    loaded = torch.load(place / "model_optim_rng.pt", weights_only=False)
    torch.load(place / "distrib_optim.pt", weights_only=True)
    return loaded["iteration"], loaded["model"]["language_model"]["weight"]


def run_on_cpu():
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: torch.device("cpu")


def write(save_dir, save):
    for iteration in SAVED:
        save(save_dir / f"iter_{iteration:07d}", iteration)
        distributed.barrier()
        if distributed.get_rank() == 0:
            with (save_dir / TRACKER).open("w") as tracker:
                tracker.write(str(iteration))
    return 0, SAVED[-1]


def resume(save_dir, load):
    named = int((save_dir / TRACKER).read_text())
    iteration, weight = load(save_dir / f"iter_{named:07d}", named)
    assert torch.equal(weight, state_at(iteration)["weight"])
    return iteration, iteration


def main(mode, verb, save_dir):
    distributed.init_process_group("gloo")
    run_on_cpu()
    save, load = {"dist": (save_dist, load_dist), "legacy": (save_legacy, load_legacy)}[mode]
    first, last = write(Path(save_dir), save) if verb == "write" else resume(Path(save_dir), load)
    if distributed.get_rank() == 0:
        print(json.dumps({"first_step": first, "last_step": last}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Trains a tiny Llama under FSDP2 on the CPU and saves it with Accelerate's own writers, plainly and concurrently.

    torchrun --nproc-per-node 2 fsdp_training.py DIRECTORY SHARDED_STATE_DICT|FULL_STATE_DICT

Accelerate refuses FSDP on a CPU, so the model is sharded with torch's `fully_shard` on a gloo mesh, and a namespace
stands for the accelerator; what writes and reads is Accelerate's. Prints nothing if all is as it must be.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import tiny_llama
import torch
from accelerate import PartialState
from accelerate.utils import FullyShardedDataParallelPlugin, fsdp_utils
from datastates._engine.engine import Engine
from datastates._engine.settings import parse
from datastates.llm.sinks import redirected
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

SAVED_STEP, LAST_STEP = 2, 5


class Training:
    """A sharded model, its optimizer, and Accelerate's readers and writers for both."""

    def __init__(self, mesh, state_dict_type: str) -> None:
        self.model = tiny_llama.model(dropout=0.0)
        for layer in self.model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type=state_dict_type)
        self.accelerator = SimpleNamespace(
            process_index=distributed.get_rank(),
            num_processes=distributed.get_world_size(),
            is_main_process=distributed.get_rank() == 0,
            wait_for_everyone=distributed.barrier,
            is_fsdp2=True,
        )

    def step(self, number: int) -> None:
        generator = torch.Generator().manual_seed(number * 10 + distributed.get_rank())
        tokens = torch.randint(3, 64, (2, 16), generator=generator)
        self.optimizer.zero_grad()
        self.model(input_ids=tokens, labels=tokens).loss.backward()
        self.optimizer.step()

    def save(self, directory: Path) -> None:
        fsdp_utils.save_fsdp_model(self.plugin, self.accelerator, self.model, str(directory))
        fsdp_utils.save_fsdp_optimizer(self.plugin, self.accelerator, self.optimizer, self.model, str(directory))

    def load(self, directory: Path) -> None:
        fsdp_utils.load_fsdp_model(self.plugin, self.accelerator, self.model, str(directory))
        fsdp_utils.load_fsdp_optimizer(self.plugin, self.accelerator, self.optimizer, self.model, str(directory))

    def shards(self) -> list[torch.Tensor]:
        states = [value for state in self.optimizer.state.values() for value in state.values()]
        tensors = [*self.model.parameters(), *(value for value in states if isinstance(value, torch.Tensor))]
        return [getattr(tensor, "_local_tensor", tensor).detach().clone() for tensor in tensors]


def main(directory: Path, state_dict_type: str) -> None:
    PartialState(cpu=True)  # starts gloo
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    stock, ours = directory / "stock", directory / f"ours/checkpoint-{SAVED_STEP}"
    engine = Engine(directory / "ours", parse({"copy": "lazy", "debug_hash": True}))
    training = Training(mesh, state_dict_type)
    for step in range(1, SAVED_STEP + 1):
        training.step(step)
    training.save(stock)
    save_concurrently(engine, training)
    for step in range(SAVED_STEP + 1, LAST_STEP + 1):
        training.step(step)
    engine.close()
    distributed.barrier()
    assert engine.status.failed == 0, engine.status
    assert files(stock) == files(ours) - {"MANIFEST.json", "COMMITTED"}, files(ours)
    for source in (stock, ours):
        resumed = Training(mesh, state_dict_type)
        resumed.load(source)
        for step in range(SAVED_STEP + 1, LAST_STEP + 1):
            resumed.step(step)
        assert all(map(torch.equal, resumed.shards(), training.shards())), f"resumed otherwise from {source}"
    distributed.destroy_process_group()


def save_concurrently(engine: Engine, training: Training) -> None:
    def write(capture) -> None:
        with redirected(capture):
            training.save(capture.directory)

    outcome = engine.save(SAVED_STEP, write)
    assert outcome.name == "STARTED", outcome
    assert engine.status.blocking_bytes == 0, "the writers' bytes did not go through the capture"


def files(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

"""What a checkpoint costs a training on one GPU: bench/checkpoint.py with the state on it.

    python bench/gpu_checkpoint.py --dir /local/disk/x      (and once more with --dir /dev/shm/x: without the disk)

The reused stager has its own defaults here: pinned memory, a side stream, and the wait before the step that its recipe
asks for. Two things are told besides: what page-locking the pool costs, once, in a thread; and how long the steps right
behind a save take on the GPU, beside an undisturbed one.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
import warnings
from itertools import pairwise
from pathlib import Path

import checkpoint
import torch
from checkpoint import Modes, Training
from table import show
from torch.distributed.checkpoint.staging import StagingOptions

from slurm_ft.vendor.datastates._engine.device import CudaPinner
from slurm_ft.vendor.datastates._engine.hashing import CHUNK_BYTES
from slurm_ft.vendor.datastates._engine.pool import Pool

GIB = 1 << 30
PINNED_GIB = 2
TIMED_STEPS = 4


class GpuTraining(Training):
    """Linear layers with bfloat16 activations and fp32 state: 12 bytes for each parameter."""

    def __init__(self, layers: int, width: int, batch: int) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)]).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.batch = torch.randn(batch, width, device="cuda")

    def step(self) -> None:
        self.optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.model(self.batch).float().pow(2).mean()
        loss.backward()
        self.optimizer.step()

    def finish(self) -> None:
        torch.cuda.synchronize()


class GpuModes(Modes):
    """The same rivals, the stager as its authors mean it for a GPU."""

    staging = StagingOptions(
        use_pinned_memory=True, use_shared_memory=True, use_async_staging=True, use_non_blocking_copy=True
    )


def pinning() -> float:
    """Return the seconds that page-locking a GiB takes."""
    pool = Pool(CHUNK_BYTES, PINNED_GIB * GIB, CudaPinner())
    started = time.perf_counter()
    pool.expect(PINNED_GIB * GIB)
    while pool.allocated < PINNED_GIB * GIB:
        time.sleep(0.001)
    seconds = time.perf_counter() - started
    pool.close()
    return seconds / PINNED_GIB


def step_times(training: GpuTraining, modes: Modes, mode: str, number: int) -> tuple[float, list[float]]:
    """Return an undisturbed step and the steps right behind a save, in ms by the GPU's own clock."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2 * TIMED_STEPS + 2)]
    training.finish()
    for mark in marks[: TIMED_STEPS + 1]:
        mark.record()
        training.step()
    training.finish()
    wait = modes.all[mode](number)
    for mark in marks[TIMED_STEPS + 1 :]:
        mark.record()
        training.step()
    training.finish()
    wait()
    times = [first.elapsed_time(second) for first, second in pairwise(marks)]
    return statistics.median(times[:TIMED_STEPS]), times[TIMED_STEPS + 1 :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=20, help="20 of width 4096: 4 GB of state")
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10, help="steps after each save, at least")
    parser.add_argument("--seconds", type=float, default=80, help="begin no new round after this time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp/slurm_ft-bench-gpu"))
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no GPU here: nothing to measure")
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    shutil.rmtree(arguments.dir, ignore_errors=True)
    arguments.dir.mkdir(parents=True)
    training = GpuTraining(arguments.layers, arguments.width, arguments.batch)
    for _ in range(3):
        training.step()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, files in {arguments.dir}", file=sys.stderr)
    print(f"page-locking: {pinning():.2f} s per GiB, once, in a thread")
    modes = GpuModes(training, arguments.dir)
    training.step()
    results = checkpoint.run(training, modes, arguments)
    rows = []
    for number, mode in enumerate(("ours, lazy", "ours, eager"), start=1_000_000):
        clean, disturbed = step_times(training, modes, mode, number)
        rows.append((mode, f"{clean:.1f}", ", ".join(f"{ms:.1f}" for ms in disturbed)))
    modes.close()
    checkpoint.tell(results, sum(p.numel() for p in training.model.parameters()) * 12)
    show("Steps by the GPU's clock", ("mode", "undisturbed ms", "right behind a save ms"), rows)
    shutil.rmtree(arguments.dir)


if __name__ == "__main__":
    main()

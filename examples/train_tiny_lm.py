"""A small but real training: a causal language model over bytes that saves its own checkpoints and resumes.

It stands for a researcher's plain PyTorch script. It needs torch only, runs on one CPU core in seconds, and follows
the two rules that make any script survive the loss of its node:

* a checkpoint `ckpt_{step}.pth` appears in `--output-dir` whole or not at all (temporary name, fsync, rename), and
  holds everything the next step depends on: model, optimizer, scheduler, random state, position in the data;
* it resumes when `CKPT_LAST_STEP` is set, from `CKPT_LAST_PATH` or else `ckpt_{CKPT_LAST_STEP}.pth`, and starts from
  scratch when it is not. `slurm-ft resume` sets both.

A resumed run gives bit for bit the losses of an uninterrupted one.

The remaining options are for demonstrations and tests: `--fail-at` and `--fault-file` make it die as a user's bug or
a lost GPU would.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONTEXT = 64  # bytes per sample
BATCH = 8  # samples per step
WIDTH = 96
HEADS = 4
LAYERS = 2
WARMUP_STEPS = 10

# What PyTorch prints when the device stops answering (cudaErrorLaunchFailure). A bug in a kernel can print the same:
# the text proves nothing about the hardware.
LOST_GPU_TEXT = """CUDA error: unspecified launch failure
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


# --- data ------------------------------------------------------------------------------------------------------------


def make_text(sentences: int = 2000) -> bytes:
    """Return the same simple English sentences every time."""
    choose = random.Random(7).choice  # noqa: S311 - a text, not a secret
    subjects = ("the sailor", "a quiet child", "the old clock", "our neighbour", "the river", "a grey cat")
    verbs = ("watches", "remembers", "follows", "carries", "forgets", "paints")
    objects = ("the harbour", "a letter", "the long road", "seven stones", "the morning", "an empty boat")
    endings = ("before dawn", "without a word", "every winter", "in the rain", "for a while", "once more")
    words = ((choose(subjects), choose(verbs), choose(objects), choose(endings)) for _ in range(sentences))
    return "".join(f"{' '.join(sentence)}.\n" for sentence in words).encode()


class Batches:
    """Shuffled samples of the text. `epoch` and `batch` are its whole state: the order follows from the seed."""

    def __init__(self, text: bytes, seed: int) -> None:
        tokens = torch.tensor(list(text), dtype=torch.long)
        count = (len(tokens) - 1) // CONTEXT
        self._inputs = tokens[: count * CONTEXT].view(count, CONTEXT)
        self._targets = tokens[1 : count * CONTEXT + 1].view(count, CONTEXT)
        self._seed = seed
        self.per_epoch = count // BATCH
        self.seek(epoch=0, batch=0)

    def seek(self, epoch: int, batch: int) -> None:
        """Continue with this batch of this epoch."""
        generator = torch.Generator().manual_seed(self._seed + epoch)
        self._order = torch.randperm(len(self._inputs), generator=generator)
        self.epoch, self.batch = epoch, batch

    def next(self) -> tuple[Tensor, Tensor]:
        """Return the next inputs and targets, each of shape (BATCH, CONTEXT)."""
        if self.batch == self.per_epoch:
            self.seek(self.epoch + 1, 0)
        chosen = self._order[self.batch * BATCH : (self.batch + 1) * BATCH]
        self.batch += 1
        return self._inputs[chosen], self._targets[chosen]


# --- model -----------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Causal self-attention and a feed-forward net, each with its residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention, self.norm_feed = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def attend(self, x: Tensor) -> Tensor:
        """Mix each position with the positions before it."""
        batch, length, _ = x.shape
        heads = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, length, WIDTH) to the same shape."""
        x = x + self.attend(self.norm_attention(x))
        return x + self.feed(self.norm_feed(x))


class TinyLanguageModel(nn.Module):
    """Two transformer blocks over bytes, about 280,000 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next byte at each position."""
        x = self.bytes(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def learning_rate_factor(done: int) -> float:
    """Warm up, then fall with the root of the step. Independent of `--steps`, so a run can be made longer later."""
    return min((done + 1) / WARMUP_STEPS, math.sqrt(WARMUP_STEPS / (done + 1)))


class Training:
    """Everything a step depends on, and so everything a checkpoint holds."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = TinyLanguageModel()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, learning_rate_factor)
        self.batches = Batches(make_text(), seed)
        self.step = 0
        self.loss = math.nan

    def advance(self) -> None:
        """Make one optimizer step."""
        inputs, targets = self.batches.next()
        logits = self.model(inputs)
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.step += 1
        self.loss = loss.item()

    def state(self) -> dict[str, Any]:
        """Return plain tensors and numbers only: `torch.load(weights_only=True)` reads them back."""
        return {
            "step": self.step,
            "loss": self.loss,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "rng": torch.get_rng_state(),
            "data": {"epoch": self.batches.epoch, "batch": self.batches.batch},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to where `state()` was taken."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.batches.seek(**state["data"])
        self.step, self.loss = state["step"], state["loss"]
        torch.set_rng_state(state["rng"])


# --- checkpoints -----------------------------------------------------------------------------------------------------


def save(state: dict[str, Any], directory: Path, keep: int) -> Path:
    """Write `ckpt_{step}.pth` so that it is whole or absent whatever happens, then drop the older ones."""
    target = directory / f"ckpt_{state['step']}.pth"
    temporary = directory / f".{target.name}.{socket.gethostname()}.{os.getpid()}.tmp"
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(target)
    sync_directory(directory)
    prune(directory, newest=state["step"], keep=keep)
    return target


def sync_directory(directory: Path) -> None:
    """Make the rename itself survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def prune(directory: Path, newest: int, keep: int) -> None:
    """Keep the last `keep` checkpoints up to `newest`, and drop temporary files that a killed attempt left behind.

    A file above `newest` is a broken one that the resume passed over: it is evidence, and must not push out good ones.
    """
    saved = steps_of(directory, r"ckpt_(\d+)\.pth", newest)
    leftover = steps_of(directory, r"\.ckpt_(\d+)\.pth\..+\.tmp", newest)
    for _, path in saved[:-keep] + leftover:
        path.unlink(missing_ok=True)


def steps_of(directory: Path, pattern: str, newest: int) -> list[tuple[int, Path]]:
    """Return the matching files up to step `newest`, ordered by number: by name, ckpt_9 would follow ckpt_10."""
    found = ((re.fullmatch(pattern, path.name), path) for path in directory.iterdir())
    numbered = ((int(match[1]), path) for match, path in found if match)
    return sorted(entry for entry in numbered if entry[0] <= newest)


def checkpoint_to_resume(directory: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the checkpoint that the environment names; None means from scratch."""
    step = environ.get("CKPT_LAST_STEP")
    if step is None:
        return None
    named = environ.get("CKPT_LAST_PATH")
    return Path(named) if named else directory / f"ckpt_{int(step)}.pth"


# --- faults, for demonstrations and tests ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Faults:
    """When and how to die. A lost GPU stays behind on its node; a bug comes along to every attempt."""

    step: int | None
    kind: str
    file: Path | None
    node: str
    attempt: int

    def check(self, next_step: int) -> None:
        """Raise if this process is to die before it makes `next_step`."""
        if next_step == self.step and self.kind == "python":
            msg = f"expected a batch of {BATCH} samples, got {BATCH + 1}"
            raise ValueError(msg)
        if (next_step == self.step and self.attempt == 0) or self._named_by_file():
            # The class is missing before torch 2.8.
            raise getattr(torch, "AcceleratorError", RuntimeError)(LOST_GPU_TEXT)

    def _named_by_file(self) -> bool:
        try:
            return self.file is not None and self.file.read_text(encoding="utf-8").strip() == self.node
        except OSError:
            return False


# --- main ------------------------------------------------------------------------------------------------------------


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a tiny language model that survives the loss of its node.")
    parser.add_argument("--output-dir", type=Path, default=os.environ.get("OUTPUT_DIR", "output"))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--keep", type=int, default=3, help="checkpoints to keep (default 3)")
    parser.add_argument("--log-every", type=int, default=2, metavar="STEPS")
    parser.add_argument("--seed", type=int, default=1)
    demo = parser.add_argument_group("for demonstrations and tests")
    demo.add_argument("--step-seconds", type=float, default=0.0, help="pause after each step")
    demo.add_argument("--fail-at", type=int, metavar="STEP", help="die before this step")
    demo.add_argument("--fail-as", choices=("python", "gpu-lost"), default="python")
    demo.add_argument("--fault-file", type=Path, help="die as a lost GPU does once this file holds my node's name")
    arguments = parser.parse_args(argv)
    if min(arguments.steps, arguments.save_every, arguments.keep, arguments.log_every) < 1:
        parser.error("--steps, --save-every, --keep and --log-every must be at least 1")
    return arguments


class SlurmSignals:
    """Slurm's signals, noted until the step is done.

    SIGUSR1 is what the batch script asks for ahead of the time limit: save once more and go on, so that the job's state
    says TIMEOUT in the end. SIGTERM comes with a preemption, a requeue or a cancellation: save and leave the node.
    """

    def __init__(self) -> None:
        self._noted: set[int] = set()
        signal.signal(signal.SIGUSR1, self._note)
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, _frame: object) -> None:
        self._noted.add(number)

    def take(self) -> set[int]:
        """Return the signals that came since the last call."""
        noted, self._noted = self._noted, set()
        return noted


def say(text: str) -> None:
    """Print at once: what a killed process had buffered is lost."""
    print(text, flush=True)


def run(training: Training, arguments: argparse.Namespace, faults: Faults, *, leader: bool) -> int:
    """Train up to `--steps` and return the exit code.

    Only the leader (rank 0) saves and prints: replicas that start alike stay alike.
    """
    signals = SlurmSignals()
    while training.step < arguments.steps:
        faults.check(training.step + 1)
        training.advance()
        told, last = signals.take(), training.step == arguments.steps
        if leader and (training.step % arguments.log_every == 0 or last):
            say(f"step {training.step}/{arguments.steps} loss {training.loss:.4f}")
        if leader and (training.step % arguments.save_every == 0 or last or told):
            save(training.state(), arguments.output_dir, arguments.keep)
        if leader and told:
            say(f"told to save: step {training.step} saved")
        if signal.SIGTERM in told and not last:
            return 128 + signal.SIGTERM
        time.sleep(arguments.step_seconds)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Train, resuming if the environment says so. Returns the exit code."""
    arguments = parse_arguments(argv)
    environ = os.environ
    leader = environ.get("SLURM_PROCID", "0") == "0"
    torch.set_num_threads(1)
    if leader:
        say("Starting dataset initialization")
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    training = Training(arguments.seed)
    checkpoint = checkpoint_to_resume(arguments.output_dir, environ)
    if checkpoint:
        training.restore(torch.load(checkpoint, weights_only=True))
    if checkpoint and leader:
        say(f"resumed from step {training.step}")
    node = environ.get("SLURMD_NODENAME", socket.gethostname())
    attempt = int(environ.get("SLURM_RESTART_COUNT", "0"))
    faults = Faults(arguments.fail_at, arguments.fail_as, arguments.fault_file, node, attempt)
    code = run(training, arguments, faults, leader=leader)
    if leader and code == 0:
        say(f"training complete: {training.step} steps, final loss {training.loss:.4f}")
    return code


if __name__ == "__main__":
    sys.exit(main())

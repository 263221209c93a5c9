"""What a checkpoint costs the training, against what else one could use.

All modes run interleaved in one process, in an order shuffled for each round, with the same durability: every file and
directory fsynced, on the disk of `--dir`. A control round saves nothing. Ours hashes every byte and commits atomically
too. Numbers of a shared machine are worth little: the pressure (PSI) of each round is noted, and printed.

added      wall time of the steps from the call until durable (at least STEPS), less the same number of control steps
call       until the training goes on
durable    until a power cut loses nothing
RSS+       peak memory above that before the call
CPU        of the process above the control's
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import shutil
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from table import show, verdict
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.optim.optimizer import register_optimizer_step_pre_hook

from slurm_ft.vendor.datastates._engine import commit, image, skeleton, snapshot, writer
from slurm_ft.vendor.datastates._engine.durable import sync_directory, sync_file
from slurm_ft.vendor.datastates._engine.engine import Engine
from slurm_ft.vendor.datastates._engine.settings import parse

MIB = 1 << 20
WIDTH = 1024
SAMPLE_SECONDS = 0.002
SAVE_STEPS = 500  # the Trainer's default
REUSED = "dcp.async_save, reused stager"


class Training:
    """Linear layers and AdamW in fp32: 12 bytes of state for each parameter."""

    def __init__(self, layers: int, batch: int) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batch = torch.randn(batch, WIDTH)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.batch).pow(2).mean().backward()
        self.optimizer.step()

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def finish(self) -> None:
        """Return when all steps are taken: a GPU is told ahead of what it does."""


# --- the modes: each saves once, and returns a function that waits until it is durable -------------------------------

Wait = Callable[[], None]


def nothing() -> None:
    """There is nothing to wait for."""


def sync_tree(directory: Path) -> None:
    """What dcp leaves out: it fsyncs the files' data, but no directory."""
    for folder, _, names in os.walk(directory, topdown=False):
        for name in names:
            sync_file(Path(folder, name))
        sync_directory(Path(folder))
    sync_directory(directory.parent)


class Modes:
    """Everything that is compared, ready to use."""

    staging = StagingOptions(
        use_pinned_memory=False, use_shared_memory=False, use_async_staging=True, use_non_blocking_copy=False
    )

    def __init__(self, training: Training, directory: Path) -> None:
        self._training = training
        self._directory = directory
        self._stager = DefaultStager(self.staging)
        self._staging: Any = None
        register_optimizer_step_pre_hook(lambda *_: self._await_staging())
        self._engines = {copy: self._engine(copy) for copy in ("lazy", "eager")}
        self.all: dict[str, Callable[[int], Wait]] = {
            "control": lambda _: nothing,
            "torch.save + fsync": self._torch_save,
            "dcp.save": self._dcp_save,
            "dcp.async_save": self._dcp_async,
            REUSED: self._dcp_reused,
            "ours, lazy": lambda step: self._ours("lazy", step),
            "ours, eager": lambda step: self._ours("eager", step),
        }
        self._trainer = _trainer(training, directory / "trainer")
        if self._trainer is not None:
            self.all["Trainer + fsync"] = self._trainer_save

    def _engine(self, copy: str) -> Engine:
        return Engine(self._directory / copy, parse({"copy": copy, "keep_last": 1, "host_cache_size": 8}))

    def _fresh(self, name: str) -> Path:
        path = self._directory / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path

    def _torch_save(self, _: int) -> Wait:
        path = self._fresh("torch") / "state.pt"
        torch.save(self._training.state(), path)
        sync_tree(path.parent)
        return nothing

    def _trainer_save(self, step: int) -> Wait:
        """What transformers writes at `save_steps`, by its own saver; it fsyncs nothing by itself."""
        path = self._fresh("trainer")
        self._trainer.state.global_step = step
        self._trainer._save_checkpoint(self._training.model, trial=None)
        sync_tree(path)
        return nothing

    def _dcp_save(self, _: int) -> Wait:
        path = self._fresh("dcp")
        dcp.save(self._training.state(), checkpoint_id=path, no_dist=True)
        sync_tree(path)
        return nothing

    def _dcp_async(self, _: int) -> Wait:
        path = self._fresh("dcp_async")
        future = dcp.async_save(self._training.state(), checkpoint_id=path, no_dist=True)
        return lambda: (future.result(), sync_tree(path))[1]

    def _dcp_reused(self, _: int) -> Wait:
        path = self._fresh("dcp_reused")
        response = dcp.async_save(self._training.state(), checkpoint_id=path, no_dist=True, async_stager=self._stager)
        self._staging = response.staging_completion
        return lambda: (response.upload_completion.result(), sync_tree(path))[1]

    def _await_staging(self) -> None:
        staging, self._staging = self._staging, None
        if staging is not None:
            staging.result()

    def _ours(self, copy: str, step: int) -> Wait:
        engine = self._engines[copy]
        engine.save(step, lambda capture: capture.torch_save(self._training.state(), capture.directory / "state.pt"))
        return lambda: _committed(engine, step)

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()


def _trainer(training: Training, directory: Path) -> Any:
    """Return a transformers Trainer of this model and optimizer; None, and a word about it, without transformers."""
    if not all(map(importlib.util.find_spec, ("transformers", "accelerate"))):
        print("the Trainer's own save is left out: no transformers and accelerate here", file=sys.stderr)
        return None
    from transformers import Trainer, TrainingArguments  # noqa: PLC0415 - where it is installed

    schedule = torch.optim.lr_scheduler.LambdaLR(training.optimizer, lambda _: 1.0)
    on_cpu = next(training.model.parameters()).device.type == "cpu"
    arguments = TrainingArguments(output_dir=str(directory), report_to="none", use_cpu=on_cpu)
    return Trainer(model=training.model, args=arguments, optimizers=(training.optimizer, schedule))


def _committed(engine: Engine, step: int) -> None:
    engine.wait()
    if engine.status.last_committed_step != step:
        raise SystemExit(f"our own checkpoint of step {step} failed: {engine.status}")


# --- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """One save; seconds and bytes. `wall` is that of `steps` steps and the call."""

    wall: float
    steps: int
    call: float
    durable: float
    rss: int
    cpu: float
    pressure: float


@dataclass
class Results:
    """All samples of one mode."""

    samples: list[Sample] = field(default_factory=list)

    def of(self, value: Callable[[Sample], float]) -> list[float]:
        return [value(sample) for sample in self.samples]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Sample the resident set; the list's one value is the peak above the start."""
    start, peak, stop = resident(), [0], threading.Event()

    def watch() -> None:
        while not stop.wait(SAMPLE_SECONDS):
            peak[0] = max(peak[0], resident() - start)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield peak
    stop.set()
    thread.join()


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def pressure() -> float:
    try:
        return float(Path("/proc/pressure/cpu").read_text(encoding="ascii").split("avg10=")[1].split()[0])
    except OSError:
        return float("nan")


def measure(training: Training, save: Callable[[int], Wait], number: int, least_steps: int) -> Sample:
    """Save once between steps, and step until it is durable."""
    training.step()
    training.finish()
    with peak_memory() as peak:
        cpu, started = cpu_seconds(), time.perf_counter()
        wait = save(number)
        call = time.perf_counter() - started
        done: list[float] = [] if wait is not nothing else [call]
        waiter = threading.Thread(target=lambda: (wait(), done.append(time.perf_counter() - started)))
        if not done:
            waiter.start()
        steps = 0
        while steps < least_steps or not done:
            training.step()
            steps += 1
        training.finish()
        wall, cpu = time.perf_counter() - started, cpu_seconds() - cpu
    if waiter.ident is not None:
        waiter.join()
    return Sample(wall, steps, call, done[0], peak[0], cpu, pressure())


def run(training: Training, modes: Modes, arguments: argparse.Namespace) -> dict[str, Results]:
    results = {name: Results() for name in modes.all}
    shuffled = random.Random(arguments.seed)
    number, started = 0, time.monotonic()
    for round_number in range(arguments.rounds + 1):
        if round_number > 2 and time.monotonic() - started > arguments.seconds:
            break  # fewer rounds than asked for; the title tells how many
        names = list(modes.all)
        shuffled.shuffle(names)
        for name in names:
            number += 1
            sample = measure(training, modes.all[name], number, arguments.steps)
            if round_number:  # the first round warms everything up
                results[name].samples.append(sample)
        print(f"round {round_number} of {arguments.rounds}", file=sys.stderr)
    return results


# --- where the time goes ----------------------------------------------------------------------------------------------


class Stopwatch:
    """Seconds spent in functions, by name, summed over all threads."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def watch(self, owner: Any, attribute: str, name: str) -> None:
        original = getattr(owner, attribute)

        def timed(*args: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return original(*args, **options)
            finally:
                spent = time.perf_counter() - started
                with self._lock:
                    self.seconds[name] = self.seconds.get(name, 0.0) + spent

        self.seconds[name] = 0.0
        setattr(owner, attribute, timed)


def breakdown(training: Training, modes: Modes, saves: int, state_bytes: int) -> None:
    """Save a few more times, with a stopwatch on each stage; the last thing that is done here, since it stays on."""
    watch = Stopwatch()
    for owner, attribute, name in (
        (skeleton, "torch_file_image", "  of it: the archive without its tensors"),
        (snapshot.Snapshot, "settle", "fence: the optimizer waits"),
        (image.FileImage, "assemble", "copies, by workers and fence"),
        (writer, "chunk_digest", "hashing"),
        (writer, "_write_all", "writing"),
        (writer.OutputFile, "_finish", "fsync of files"),
        (commit, "seal", "commit: manifest, marker, rename, fsyncs"),
    ):
        watch.watch(owner, attribute, name)
    numbers = range(2_000_000, 2_000_000 + saves)
    calls = [measure(training, modes.all["ours, lazy"], number, 2).call for number in numbers]
    times = {"call: all of it": sum(calls), **watch.seconds}
    rows = [
        (name, f"{total / saves * 1e3:.1f}", _rate(name, total / saves, state_bytes)) for name, total in times.items()
    ]
    show("Where the time of a lazy save goes (threads added up)", ("stage", "ms per save", "GB/s"), rows)


def _rate(name: str, seconds: float, size: int) -> str:
    moves_all = name in ("copies, by workers and fence", "hashing", "writing")
    return f"{size / seconds / 1e9:.1f}" if moves_all and seconds else ""


# --- telling ---------------------------------------------------------------------------------------------------------


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def tell(results: dict[str, Results], state_bytes: int) -> dict[str, dict[str, float]]:
    control = results["control"]
    step = statistics.median(control.of(lambda s: s.wall / s.steps))
    cpu_step = statistics.median(control.of(lambda s: s.cpu / s.steps))
    rows, medians = [], {}
    for name, result in results.items():
        added = quartiles(result.of(lambda s: (s.wall - s.steps * step) * 1e3))
        call = statistics.median(result.of(lambda s: s.call * 1e3)) if name != "control" else 0.0
        durable = statistics.median(result.of(lambda s: s.durable * 1e3)) if name != "control" else 0.0
        rss = statistics.median(result.of(lambda s: s.rss / MIB))
        cpu = statistics.median(result.of(lambda s: s.cpu - s.steps * cpu_step))
        medians[name] = {"added": added[1], "call": call, "durable": durable, "rss": rss, "cpu": cpu}
        rows.append(
            (
                name,
                f"{added[1]:.0f} [{added[0]:.0f}, {added[2]:.0f}]",
                f"{call:.0f}",
                f"{durable:.0f}",
                f"{rss:.0f}",
                f"{cpu:.2f}",
            )
        )
    pressures = [s.pressure for result in results.values() for s in result.samples]
    title = (
        f"State {state_bytes / 1e6:.0f} MB, {len(control.samples)} rounds, step {step * 1e3:.0f} ms; "
        f"PSI cpu avg10 median {statistics.median(pressures):.1f}, greatest {max(pressures):.1f}"
    )
    header = ("mode", "added ms: median [quartiles]", "call ms", "durable ms", "RSS+ MiB", "CPU s")
    show(title, header, rows)
    low, _, high = quartiles(control.of(lambda s: (s.wall - s.steps * step) * 1e3))
    judge(medians, state_bytes, step, noise=high - low)
    return medians


def judge(medians: dict[str, dict[str, float]], state_bytes: int, step: float, noise: float) -> None:
    """Compare with the targets. Added times mean nothing where the control itself varies by as much.

    `step`: seconds of an undisturbed one; `noise`: milliseconds between the control's quartiles.
    """
    ours = min((medians["ours, lazy"], medians["ours, eager"]), key=lambda m: m["added"])
    plain, default = medians["torch.save + fsync"], medians["dcp.async_save"]
    reused = medians[REUSED]
    extra = (ours["rss"] - medians["control"]["rss"]) * MIB
    checks = [
        ("added / torch.save + fsync", ours["added"] / plain["added"], 0.4),
        ("added / dcp.async_save", ours["added"] / default["added"], 0.6),
        ("added / reused stager", ours["added"] / reused["added"], 1.1),
        (f"added / {SAVE_STEPS} steps, percent", 100 * ours["added"] / (SAVE_STEPS * step * 1e3), 1.0),
        ("call / torch.save + fsync", ours["call"] / plain["call"], 0.2),
        ("durable / torch.save + fsync", ours["durable"] / plain["durable"], 1.3),
        ("RSS+ / state", extra / state_bytes, 1.1),
    ]
    noisy = noise > plain["added"] / 2
    rows = [
        (name, f"{value:.2f}", f"{target}", "NOISY" if noisy and name.startswith("added") else verdict(value, target))
        for name, value, target in checks
    ]
    # Neither is a target. Where the wall clock is noise, the work that was done still tells.
    rows += [
        (f"CPU / {name}", f"{ours['cpu'] / medians[name]['cpu']:.2f}", "", "")
        for name in ("torch.save + fsync", REUSED)
    ]
    show("Targets (ours: the cheaper way to copy)", ("ratio", "measured", "at most", ""), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=24, help="24: 302 MB of state; 96: 1.2 GB")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=6, help="steps after each save, at least")
    parser.add_argument("--seconds", type=float, default=3600, help="begin no new round after this time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp/slurm_ft-bench-checkpoint"))
    parser.add_argument("--json", type=Path, help="also write the medians here")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    torch.set_num_threads(1)  # of two cores: a training on a GPU leaves the other ones idle too
    shutil.rmtree(arguments.dir, ignore_errors=True)
    arguments.dir.mkdir(parents=True)
    training = Training(arguments.layers, arguments.batch)
    for _ in range(3):
        training.step()
    modes = Modes(training, arguments.dir)
    results = run(training, modes, arguments)
    size = sum(p.numel() for p in training.model.parameters()) * 12
    medians = tell(results, size)
    breakdown(training, modes, 5, size)
    modes.close()
    if arguments.json:
        arguments.json.write_text(json.dumps({"bytes": size, "medians": medians}), encoding="utf-8")
    shutil.rmtree(arguments.dir)


if __name__ == "__main__":
    main()

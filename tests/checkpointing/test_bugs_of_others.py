"""Bugs that other checkpoint engines have had. Those of torn or stale bytes are in test_right_bytes.py."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from small_training import Training, load, save, snapshot_of

from slurm_ft.checkpoints import Policy, choose
from slurm_ft.vendor.datastates._engine.paths import committed

ROOT = Path(__file__).parents[2]

ENDS_AT_ONCE = """
import os, sys, torch
from datastates import Checkpoints
checkpoints = Checkpoints(sys.argv[1])
checkpoints.save(1, {"weights": torch.arange(2_000_000)}, now=True)
if os.fork() == 0:  # as a worker of a data loader does
    sys.exit(0)
os.wait()
raise SystemExit(int(sys.argv[2]))
"""


def run(directory: Path, code: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "slurm_ft" / "vendor")}
    command = [sys.executable, "-c", ENDS_AT_ONCE, str(directory), str(code)]
    assert subprocess.run(command, env=environment, check=False, timeout=200).returncode == code


def test_a_script_that_ends_right_after_its_save_leaves_a_whole_checkpoint(tmp_path):
    """awslabs PR 4: writes in the background were never awaited, and files were cut off. Nor does a child end it."""
    for code in (0, 7):
        run(tmp_path / str(code), code)
        saved = torch.load(tmp_path / str(code) / "checkpoint-1" / "weights.pt", weights_only=True)
        assert torch.equal(saved, torch.arange(2_000_000))
        assert not list((tmp_path / str(code)).glob(".t*"))


def test_keys_that_look_like_numbers_stay_what_they_are(make_engine):
    """DataStates-LLM turns "1" into 1 when it loads."""
    engine, value = make_engine(), torch.ones(3)
    engine.save(2, lambda c: c.torch_save({"1": value, 1: value + 1}, c.directory / "state.pt"))
    assert {key: tensor[0].item() for key, tensor in load(engine, 2).items()} == {"1": 1.0, 1: 2.0}


def test_retention_goes_by_the_step_and_not_by_a_files_time(training, make_engine):
    """transformers 25129, 26961, 27138: rotation by modification time deleted the newest, or all of them."""
    engine = make_engine(keep_last=2)
    for step in (2, 3):
        save(engine, training)
        load(engine, step)
        training.step()
    os.utime(engine.root / "checkpoint-3", (0, 0))
    save(engine, training)
    load(engine, 4)
    assert [step for step, _ in committed(engine.root)] == [4, 3]


def test_a_directory_that_was_left_half_written_is_no_checkpoint(training, make_engine):
    """transformers 35525, 35782: resuming crashed on the newest `checkpoint-N`, whatever was in it."""
    engine = make_engine()
    save(engine, training)
    load(engine, 2)
    half = engine.root / "checkpoint-9"
    half.mkdir()
    shutil.copy(engine.root / "checkpoint-2" / "state.pt", half)
    found = choose(engine.root, "concurrent", Policy(cache=False, settle_seconds=0))
    assert found.point.step == 2


def test_a_copied_directory_is_read_and_kept(training, make_engine, tmp_path):
    """orbax 394: a checkpoint that had been copied was taken for a temporary one, and deleted."""
    engine = make_engine()
    save(engine, training)
    load(engine, 2)
    copied = Path(shutil.copytree(engine.root, tmp_path / "copied"))
    other = make_engine(root=copied, keep_last=1)
    assert choose(copied, "concurrent", Policy(cache=False, settle_seconds=0)).point.step == 2
    for step in (8, 9):
        other.save(step, lambda c: c.torch_save({}, c.directory / "state.pt"))
        load(other, step)
    assert [step for step, _ in committed(copied)] == [9, 2]


def test_memory_does_not_grow_from_save_to_save(make_engine):
    """pytorch 170163, NVIDIA-NeMo/RL PR 3322: each asynchronous save kept memory, or handles to it."""
    engine, training = make_engine(copy="eager", host_cache_size=1), Training()
    training.step()
    held = []
    for step in range(2, 12):
        engine.save(step, lambda c: c.torch_save(training.state(), c.directory / "state.pt"))
        load(engine, step)
        gc.collect()
        files = len(list(Path("/proc/self/fd").iterdir()))
        tensors = sum(issubclass(type(value), torch.Tensor) for value in gc.get_objects())
        held.append((engine._pool.allocated, engine._pool._used, files, tensors))
    assert held[0] == held[-1]
    assert held[0][1] == 0


def test_a_state_that_shares_storages_comes_back_shared(training, make_engine):
    """Tied weights: two names of one tensor are one tensor again, and take their room once."""
    tied = torch.randn(512, 512)
    engine = make_engine()
    engine.save(2, lambda c: c.torch_save({"in": tied, "out": tied}, c.directory / "state.pt"))
    expected = snapshot_of(tied)
    state = load(engine, 2)
    assert torch.equal(state["in"], expected)
    assert state["in"].untyped_storage().data_ptr() == state["out"].untyped_storage().data_ptr()
    assert (engine.root / "checkpoint-2" / "state.pt").stat().st_size < 2 * tied.nbytes

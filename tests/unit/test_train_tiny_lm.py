"""The example training: it resumes bit for bit, never leaves half a checkpoint, and dies the ways it is told to."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[2] / "examples" / "train_tiny_lm.py"
SLURM_NAMES = ("CKPT_LAST_STEP", "CKPT_LAST_PATH", "SLURM_PROCID", "SLURM_RESTART_COUNT", "SLURMD_NODENAME")


@pytest.fixture(scope="module")
def script():
    """Load the script once: importing torch costs more than the training."""
    spec = importlib.util.spec_from_file_location("train_tiny_lm", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    """Leave no variable of a job and no signal handler behind."""
    for name in SLURM_NAMES:
        monkeypatch.delenv(name, raising=False)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def train(script, directory, *options):
    return script.main(["--output-dir", str(directory), "--save-every", "5", "--log-every", "1", *options])


def loss_lines(text):
    return [line for line in text.splitlines() if line.startswith("step ")]


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def same(left, right):
    """Compare nested states; tensors by their bits."""
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def test_resumed_run_equals_straight_run_bit_for_bit(script, tmp_path, monkeypatch, capsys):
    assert train(script, tmp_path / "straight", "--steps", "30") == 0
    straight = capsys.readouterr().out
    with pytest.raises(ValueError, match="expected a batch"):
        train(script, tmp_path / "resumed", "--steps", "30", "--fail-at", "18")
    first = capsys.readouterr().out
    torch.manual_seed(99)  # nothing may depend on the state that the process happens to have
    monkeypatch.setenv("CKPT_LAST_STEP", "15")
    assert train(script, tmp_path / "resumed", "--steps", "30") == 0
    second = capsys.readouterr().out

    assert loss_lines(first)[:15] + loss_lines(second) == loss_lines(straight)
    ends = [torch.load(tmp_path / run / "ckpt_30.pth", weights_only=True) for run in ("straight", "resumed")]
    assert same(*ends)


def test_run_prints_its_start_its_progress_and_its_end(script, tmp_path, capsys):
    assert train(script, tmp_path, "--steps", "4") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Starting dataset initialization"
    assert lines[1].startswith("step 1/4 loss 5.")
    assert lines[-1].startswith("training complete: 4 steps, final loss ")


def test_data_order_survives_the_end_of_an_epoch(script):
    straight = script.Batches(script.make_text(400), seed=3)
    for _ in range(straight.per_epoch + 2):
        straight.next()
    resumed = script.Batches(script.make_text(400), seed=3)
    resumed.seek(straight.epoch, straight.batch)
    assert straight.epoch == 1
    assert same(straight.next(), resumed.next())


def test_model_is_small(script):
    assert 200_000 < sum(p.numel() for p in script.TinyLanguageModel().parameters()) < 400_000


def test_ckpt_last_path_wins_over_the_default_name(script, tmp_path, monkeypatch, capsys):
    train(script, tmp_path / "old", "--steps", "5")
    monkeypatch.setenv("CKPT_LAST_STEP", "5")
    monkeypatch.setenv("CKPT_LAST_PATH", str(tmp_path / "old" / "ckpt_5.pth"))
    train(script, tmp_path / "new", "--steps", "6")
    assert "resumed from step 5" in capsys.readouterr().out
    assert names(tmp_path / "new") == ["ckpt_6.pth"]


def test_missing_checkpoint_is_an_error_not_a_new_start(script, tmp_path, monkeypatch):
    monkeypatch.setenv("CKPT_LAST_STEP", "5")
    with pytest.raises(FileNotFoundError):
        train(script, tmp_path, "--steps", "6")


def test_keeps_the_last_by_number_and_never_counts_newer_broken_ones(script, tmp_path):
    for step in (8, 9, 10, 11):
        (tmp_path / f"ckpt_{step}.pth").write_bytes(b"old")
    (tmp_path / ".ckpt_9.pth.n1.77.tmp").write_bytes(b"half")
    (tmp_path / "ckpt_best_1.pth").write_bytes(b"mine")
    script.save({"step": 10}, tmp_path, keep=2)
    assert names(tmp_path) == ["ckpt_10.pth", "ckpt_11.pth", "ckpt_9.pth", "ckpt_best_1.pth"]
    assert torch.load(tmp_path / "ckpt_10.pth", weights_only=True) == {"step": 10}


def test_failed_write_leaves_the_old_checkpoint(script, tmp_path, monkeypatch):
    script.save({"step": 5, "run": 1}, tmp_path, keep=2)

    def no_space(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(script.os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        script.save({"step": 5, "run": 2}, tmp_path, keep=2)
    assert torch.load(tmp_path / "ckpt_5.pth", weights_only=True)["run"] == 1


def test_gpu_lost_reads_like_a_lost_gpu_and_stays_on_the_first_node(script, tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match="CUDA error: unspecified launch failure"):
        train(script, tmp_path, "--steps", "6", "--fail-at", "6", "--fail-as", "gpu-lost")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    monkeypatch.setenv("CKPT_LAST_STEP", "5")
    assert train(script, tmp_path, "--steps", "6", "--fail-at", "6", "--fail-as", "gpu-lost") == 0


def test_fault_file_kills_only_the_node_that_it_names(script, tmp_path, monkeypatch):
    fault = tmp_path / "fault"
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    assert train(script, tmp_path / "a", "--steps", "1", "--fault-file", str(fault)) == 0  # none yet
    fault.write_text("n1\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match="CUDA error"):
        train(script, tmp_path / "b", "--steps", "1", "--fault-file", str(fault))
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    assert train(script, tmp_path / "c", "--steps", "1", "--fault-file", str(fault)) == 0


def test_other_ranks_neither_save_nor_print(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert train(script, tmp_path, "--steps", "1") == 0
    assert capsys.readouterr().out == ""
    assert names(tmp_path) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGUSR1, 0), (signal.SIGTERM, 143)])
def test_signal_saves_and_only_term_leaves(script, tmp_path, monkeypatch, number, code):
    advance = script.Training.advance

    def signalled(training):
        advance(training)
        if training.step == 1:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(script.Training, "advance", signalled)
    assert train(script, tmp_path, "--steps", "3") == code
    assert names(tmp_path) == (["ckpt_1.pth"] if code else ["ckpt_1.pth", "ckpt_3.pth"])


def test_kill_9_leaves_only_whole_checkpoints_and_temporary_names(tmp_path):
    command = [
        sys.executable,
        SCRIPT,
        "--output-dir",
        tmp_path,
        "--steps",
        "100000",
        "--save-every",
        "1",
        "--keep",
        "9",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "ckpt_3.pth").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    whole = [name for name in names(tmp_path) if not name.startswith(".")]
    assert whole
    for name in whole:
        state = torch.load(tmp_path / name, weights_only=True)
        assert name == f"ckpt_{state['step']}.pth"
    assert all(name.endswith(".tmp") for name in names(tmp_path) if name not in whole)


def test_process_ends_with_code_1_and_a_traceback(tmp_path):
    command = [sys.executable, SCRIPT, "--output-dir", tmp_path, "--fail-at", "1", "--fail-as", "gpu-lost"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "torch.AcceleratorError: CUDA error: unspecified launch failure" in done.stderr

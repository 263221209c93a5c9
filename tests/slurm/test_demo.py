"""The README's demo commands, from the command line, as a newcomer runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def demo(*options: str) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "slurm-ft", "demo", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_a_training_that_loses_its_gpu_finishes_on_another_node() -> None:
    done = demo()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
    assert done.stdout.count("==== slurm_ft job 1 attempt ") == 2


def test_a_training_with_a_bug_of_its_own_is_not_retried() -> None:
    done = demo("--refusal")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Pending - internalerror" in done.stdout

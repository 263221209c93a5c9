"""Starts the companion beside a training and waits until it answers: for the launcher, and for a rank on another node.

The lines in the log are the ones that users know from the vendor's documents. One that does not answer in time costs a
warning, never the training.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from .server import answers

WAIT_SECONDS = 20.0
POLL_SECONDS = 0.05
MODULE = ("-m", "datastates.validator")


def start(
    python: str,
    address: Path,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    wait: float = WAIT_SECONDS,
) -> subprocess.Popen[bytes] | None:
    """Start one that listens on `address`; None if it does not answer in `wait` seconds. It ends with the caller."""
    try:
        process = subprocess.Popen(
            [python, *MODULE, "--socket", str(address)],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        say(f"slurm_ft: WARNING: the validator could not be started ({error}): training goes on without it")
        return None
    say(f"waiting for validator through {address}...")
    if not _answers_in_time(process, address, wait):
        say("slurm_ft: WARNING: the validator did not answer in time: training goes on without it")
        process.kill()
        process.wait()
        return None
    say("validator is running....")
    say("sidecar container is running and ready for training process to run!")
    return process


def _answers_in_time(process: subprocess.Popen[bytes], address: Path, wait: float) -> bool:
    deadline = time.monotonic() + wait
    while process.poll() is None and time.monotonic() < deadline:
        if answers(address):
            return True
        time.sleep(POLL_SECONDS)
    return False

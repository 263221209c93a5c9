"""The companion that validates checkpoints beside the training: started where the site's library brings one along.

`python -m datastates.validator --socket PATH` listens on a Unix socket. Training starts once it answers; one that does
not in time costs a warning, never the training. It ends with the process that started it. The lines in the log are the
ones that users know from the vendor's documents.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_ft.launch.environment import PYTHONPATH, VENDOR, first_on_path

SOCKET_VARIABLE = "SLURM_FT_VALIDATOR_SOCKET"  # where the library in the training finds the companion
CHANNEL = Path("/channel")  # a site's own place for the socket
WAIT_SECONDS = 20.0
POLL_SECONDS = 0.05
PR_SET_PDEATHSIG = 1  # prctl(2)


@dataclass(frozen=True, slots=True)
class Companion:
    """One that answers."""

    process: subprocess.Popen[bytes]
    socket: Path


def start(environ: Mapping[str, str], say: Callable[[str], None], wait: float = WAIT_SECONDS) -> Companion | None:
    """Start the companion and wait until it answers; None where there is none or it does not. `wait` is in seconds."""
    vendor = environ.get(VENDOR, "")
    if not vendor or not (Path(vendor) / "datastates").is_dir():
        return None
    say("[INFO] Concurrent Checkpoint library is installed")
    if not _has_validator(Path(vendor)):
        return None
    try:
        address = _socket_path(environ)
        process = subprocess.Popen(
            [_python(environ), "-m", "datastates.validator", "--socket", str(address)],
            env={**environ, PYTHONPATH: first_on_path(vendor, environ.get(PYTHONPATH, ""))},
            stdin=subprocess.DEVNULL,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - this process has one thread
        )
    except OSError as error:
        say(f"slurm_ft: WARNING: the validator could not be started ({error}): training goes on without it")
        return None
    say(f"waiting for validator through {address}...")
    if not _answers(process, address, wait):
        say("slurm_ft: WARNING: the validator did not answer in time: training goes on without it")
        process.kill()
        process.wait()
        return None
    say("validator is running....")
    say("sidecar container is running and ready for training process to run!")
    return Companion(process, address)


def _has_validator(vendor: Path) -> bool:
    package = vendor / "datastates"
    return (package / "validator.py").is_file() or (package / "validator" / "__main__.py").is_file()


def _python(environ: Mapping[str, str]) -> str:
    """The training's own: it has what the library needs."""
    return shutil.which("python", path=environ.get("PATH")) or sys.executable


def _socket_path(environ: Mapping[str, str]) -> Path:
    """A new place for each attempt. A Unix socket's path holds 107 bytes, so not below a user's own TMPDIR."""
    job, restart = environ.get("SLURM_JOB_ID", "0"), environ.get("SLURM_RESTART_COUNT", "0")
    if os.access(CHANNEL, os.W_OK) and not _connects(CHANNEL / "stage.socket"):  # else another job of this node has it
        return CHANNEL / "stage.socket"
    return Path(tempfile.mkdtemp(prefix=f"slurm_ft-{job}.{restart}-", dir="/tmp")) / "stage.socket"


def _answers(process: subprocess.Popen[bytes], address: Path, wait: float) -> bool:
    deadline = time.monotonic() + wait
    while process.poll() is None and time.monotonic() < deadline:
        if _connects(address):
            return True
        time.sleep(POLL_SECONDS)
    return False


def _connects(address: Path) -> bool:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1.0)
        client.connect(str(address))
        return True
    return False


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

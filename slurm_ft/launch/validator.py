"""The companion that validates checkpoints beside the training: started where the site's library brings one along.

It listens on a Unix socket, on this node, and ends with the process that started it. On the other nodes of a job the
library itself starts one on a socket of the same name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_ft.launch.environment import PYTHONPATH, VENDOR, first_on_path
from slurm_ft.vendor.datastates.validator.server import answers
from slurm_ft.vendor.datastates.validator.start import WAIT_SECONDS
from slurm_ft.vendor.datastates.validator.start import start as begin

SOCKET_VARIABLE = "SLURM_FT_VALIDATOR_SOCKET"  # where the library in the training finds the companion
CHANNEL = Path("/channel")  # a site's own place for the socket


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
    except OSError as error:
        say(f"slurm_ft: WARNING: the validator gets no socket ({error}): training goes on without it")
        return None
    path = first_on_path(vendor, environ.get(PYTHONPATH, ""))
    process = begin(_python(environ), address, {**environ, PYTHONPATH: path}, say, wait)
    return None if process is None else Companion(process, address)


def _has_validator(vendor: Path) -> bool:
    package = vendor / "datastates"
    return (package / "validator.py").is_file() or (package / "validator" / "__main__.py").is_file()


def _python(environ: Mapping[str, str]) -> str:
    """The training's own: it has what the library needs."""
    return shutil.which("python", path=environ.get("PATH")) or sys.executable


def _socket_path(environ: Mapping[str, str]) -> Path:
    """A new place for each attempt. A Unix socket's path holds 107 bytes, so not below a user's own TMPDIR."""
    job, restart = environ.get("SLURM_JOB_ID", "0"), environ.get("SLURM_RESTART_COUNT", "0")
    if os.access(CHANNEL, os.W_OK) and not answers(CHANNEL / "stage.socket"):  # else another job of this node has it
        return CHANNEL / "stage.socket"
    return Path(tempfile.mkdtemp(prefix=f"slurm_ft-{job}.{restart}-", dir="/tmp")) / "stage.socket"

"""One watcher a node: a lock that ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from slurm_ft.errors import SlurmFtError


def hold(path: Path) -> int:
    """Take the lock for as long as this process lives; returns its descriptor. Raises SlurmFtError if another has it.

    The file stays when the process ends: to remove it would let two hold locks of the same name.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise SlurmFtError(f"{path}: {error.strerror}", "Run as root") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        what = f"process {holder} watches this node already (it holds {path})"
        raise SlurmFtError(what, "Stop it first; with several nodes on one machine name each with --node") from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    return descriptor


def holder(path: Path) -> str:
    """The process id of whoever holds the lock; "" if nobody does, or if it cannot be looked at."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
    finally:
        os.close(descriptor)
    return ""

"""One process at a time works on a job: its hooks, and `slurm-ft reconcile`.

A lock ends with its process, however that ends. There is a fixed number of lock files and none is ever removed: two
jobs may share one, which costs a wait, while a removed file could be locked twice.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_ft.errors import SlurmFtError
from slurm_ft.state_file import give_to_owner_of, open_plain

DIRECTORY = "locks"
SLOTS = 256
POLL = 0.05  # seconds


class BusyError(SlurmFtError):
    """Another process works on the job."""


@contextmanager
def job_lock(state_dir: Path, raw_id: int, wait: float) -> Iterator[bool]:
    """Hold the job's lock; gives False where there cannot be one (read-only or full state directory).

    Raises BusyError when another process has held it for `wait` seconds.
    """
    descriptor = _open(state_dir, raw_id)
    if descriptor is None:
        yield False
        return
    try:
        _take(descriptor, raw_id, wait)
        yield True
    finally:
        os.close(descriptor)


def _open(state_dir: Path, raw_id: int) -> int | None:
    directory = state_dir / DIRECTORY
    try:
        if not directory.exists():
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            _give_directory(directory)
        descriptor = open_plain(directory / str(raw_id % SLOTS), os.O_RDWR | os.O_CREAT)
    except OSError:
        return None
    give_to_owner_of(state_dir, descriptor)
    return descriptor


def _give_directory(directory: Path) -> None:
    """See give_to_owner_of: `slurm-ft reconcile` may be run by root."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        give_to_owner_of(directory.parent, descriptor)
    finally:
        os.close(descriptor)


def _take(descriptor: int, raw_id: int, wait: float) -> None:
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                what = f"job {raw_id}: another process has worked on it for {wait:g} s"
                raise BusyError(
                    what, "What it leaves open is finished by the next hook or `slurm-ft reconcile`"
                ) from None
            time.sleep(POLL)
        else:
            return

"""Work that must outlive the hook that starts it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

OPEN = Path("/proc/self/fd")


def detach(work: Callable[[], None]) -> None:
    """Run `work` in a process of its own session, and return only once that session exists.

    Newer Slurm kills the process group of a hook's script when the script returns; `setsid command &` followed by an
    exit loses that race (measured). So: fork twice, and a handshake before the parent goes on. The child keeps no
    inherited descriptor, since Slurm waits for the end of the hook's output.
    """
    ready, announce = os.pipe()
    child = os.fork()
    if child == 0:
        _lead_session(announce, work)
    os.close(announce)
    os.read(ready, 1)  # returns at the announcement, or at once if the child died
    os.close(ready)
    os.waitpid(child, 0)


def _lead_session(announce: int, work: Callable[[], None]) -> None:
    """Never returns: this is the child."""
    try:
        os.setsid()
        if os.fork() == 0:
            os.write(announce, b".")
            _drop_descriptors()
            work()
    finally:
        os._exit(0)  # neither the child nor the grandchild may unwind into the hook's own code


def _drop_descriptors() -> None:
    """Each becomes /dev/null: were it closed, an object of the hook that still holds its number would some time close
    a file that was opened later and given that number, such as the new log."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in {0, 1, 2, *(int(entry.name) for entry in OPEN.iterdir())}:
        os.dup2(null, descriptor)

"""Run work in a child process with a time limit: storage that hangs cannot be interrupted, only left behind.

A process that waits for a dead NFS server ignores every signal. So the one that the batch script waits for does not
touch the storage itself.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from typing import TYPE_CHECKING

from slurm_ft.errors import SlurmFtError

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_BYTES = 65536
REAP_TRIES, REAP_PAUSE = 50, 0.1  # five seconds, on a busy machine too


class HangingStorageError(SlurmFtError):
    """The work did not end in time."""

    exit_code = 74  # EX_IOERR of sysexits.h


def supervised(work: Callable[[], int], seconds: float, what: str) -> tuple[int, bytes]:
    """Return the exit code of `work` and what it wrote to its standard output. Raises HangingStorageError.

    An error of ours in the child is printed there, as the command line does.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _in_child(work, writer)
    os.close(writer)
    try:
        output = _read(reader, time.monotonic() + seconds)
    finally:
        os.close(reader)
    if output is None:
        _kill(child)
        raise HangingStorageError(
            f"{what} did not answer within {seconds:.0f} s",
            "Nothing was decided: make it readable on this node, then requeue the job",
        )
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), output


def _kill(child: int) -> None:
    """End the child and take its exit status; one that waits for the storage dies when that answers, if ever."""
    os.kill(child, signal.SIGKILL)
    for _ in range(REAP_TRIES):
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(REAP_PAUSE)


def _in_child(work: Callable[[], int], writer: int) -> None:
    code = 1
    try:
        os.dup2(writer, 1)
        os.close(writer)
        code = work()
    except SlurmFtError as error:
        print(f"slurm-ft: {error}", file=sys.stderr)
        code = error.exit_code
    except BaseException:  # this process must end here, whatever happened; the traceback says what
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _read(reader: int, deadline: float) -> bytes | None:
    """Everything up to the end of the pipe; None if the deadline came first."""
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                return None
            piece = os.read(reader, PIECE_BYTES)
            if not piece:
                return output
            output += piece

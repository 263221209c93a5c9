"""Run a program that may hang for ever, even beyond SIGKILL (a process that is stuck in a driver)."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from dataclasses import dataclass

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_BYTES = 1 << 20
REAP_S = 0.2  # a killed process that is not stuck in the kernel is gone by then


@dataclass(frozen=True, slots=True)
class Output:
    """What a program printed. `ended` is False if its time or its space was up first; `took_s` is in seconds."""

    text: str
    ended: bool
    took_s: float


def run_bounded(command: Sequence[str], timeout_s: float, *, errors_too: bool = False) -> Output:
    """Run `command` (its first word an absolute path) for at most `timeout_s` seconds, then kill it.

    Raises OSError if it cannot be started. It gets no input and no descriptor of ours; what it prints as errors is
    dropped, or taken too.
    """
    start = time.monotonic()
    output, write = os.pipe()
    try:
        child = _start(command, write, errors_too=errors_too)
    except OSError:
        os.close(output)
        raise
    finally:
        os.close(write)
    try:
        text, ended = _read(output, start + timeout_s)
    finally:
        os.close(output)
        _end(child)
    return Output(text.decode("utf-8", "replace"), ended, time.monotonic() - start)


def _start(command: Sequence[str], write: int, *, errors_too: bool) -> int:
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, write, 1),
        (os.POSIX_SPAWN_DUP2, 1, 2) if errors_too else (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    return os.posix_spawn(command[0], tuple(command), os.environ, file_actions=actions)


def _read(descriptor: int, deadline: float) -> tuple[bytes, bool]:
    """What is printed up to the deadline, and whether that was all."""
    text = b""
    while len(text) < MAX_BYTES:
        ready, _, _ = select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            return text, False
        block = os.read(descriptor, 65536)
        if not block:
            return text, True
        text += block
    return text, False


def _end(child: int) -> None:
    """Kill the child, and collect it unless it is stuck in the kernel."""
    deadline = time.monotonic() + REAP_S
    with contextlib.suppress(ChildProcessError):  # somebody else collected it
        os.kill(child, signal.SIGKILL)
        while os.waitpid(child, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.002)

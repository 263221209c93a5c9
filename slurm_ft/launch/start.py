"""Become the training, and leave a process beside it.

The training takes this process over (exec), instead of being its child: Slurm's signals, the exit code and a death by
signal are then the training's own, and nothing stands between the two for days. What has to go on beside it runs in a
process of its own, which Slurm ends with the job.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from slurm_ft.errors import SlurmFtError

# A signal for the whole job is the training's affair: the process beside it ends when the training does.
NOT_OURS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
TERM_GRACE = 30.0  # seconds between SIGTERM and SIGKILL


class CommandNotFoundError(SlurmFtError):
    """The training's program does not exist or is not executable; the exit code is the shell's."""

    exit_code = 127


def program(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """The path of the program. Raises CommandNotFoundError."""
    found = shutil.which(command[0], path=environ.get("PATH", os.defpath))
    if found is None:
        raise CommandNotFoundError(f"{command[0]!r} is no program in PATH", "Name it by its path, or mend PATH")
    return found


def become(path: str, command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Run the program in place of this process; never returns. Raises CommandNotFoundError when it cannot be run."""
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and the training would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(path, list(command), dict(environ))  # noqa: S606 - no shell is what we want
    except OSError as error:
        raise CommandNotFoundError(f"{path} cannot be run: {error.strerror}", "Check its first line") from error


class Training:
    """The training's process, as the process beside it sees it: it keeps this process's id through exec."""

    def __init__(self) -> None:
        self._descriptor = os.pidfd_open(os.getpid())

    def ended_within(self, seconds: float) -> bool:
        """Wait for its end, but no longer than that."""
        return bool(select.select([self._descriptor], [], [], seconds)[0])

    def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL when it takes longer than TERM_GRACE."""
        self._send(signal.SIGTERM)
        if not self.ended_within(TERM_GRACE):
            self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)


def beside(work: Callable[[], None]) -> None:
    """Run `work` in a process that is no child of this one: the training must not find one it did not start."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        if os.fork() == 0:
            for number in NOT_OURS:
                signal.signal(number, signal.SIG_IGN)
            work()
    except Exception as error:
        with suppress(OSError, ValueError):
            print(f"slurm_ft: the process beside the training ended: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(0)

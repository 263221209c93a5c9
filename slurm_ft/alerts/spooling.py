"""The part of a hook's log that spools alerts, and starts a sender in a session of its own."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from slurm_ft.alert import ATTRIBUTE, Alert
from slurm_ft.alerts import spool

LOCK = "sender.lock"


class SpoolingHandler(logging.Handler):
    """Spools the records that `alert()` makes, and no other. What fails costs the alert, never the hook."""

    def __init__(self, state_dir: Path, log: logging.Logger) -> None:
        super().__init__()
        self.state_dir = state_dir
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging, under this handler's lock."""
        told = getattr(record, ATTRIBUTE, None)
        if not isinstance(told, Alert):
            return
        try:
            spool.put(self.state_dir, told)
            start_sender(self.state_dir)
        except Exception as error:  # whatever it is: a hook goes on without its alert, which the log has
            self.log.warning("this alert goes nowhere but here: %s", error)


def start_sender(state_dir: Path) -> None:
    """Unless one is at work: that one looks again before it ends. Raises OSError.

    Popen returns once the child has its own session and runs Python, so Slurm's kill of the hook's process group at
    the hook's end does not reach it.
    """
    if _at_work(state_dir):
        return
    process = subprocess.Popen(
        [sys.executable, "-m", "slurm_ft.cli.main", "alert", "send"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    process.returncode = 0  # nobody waits for it; the hook ends before it does


def _at_work(state_dir: Path) -> bool:
    with suppress(FileNotFoundError):
        descriptor = os.open(state_dir / spool.DIRECTORY / LOCK, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False

"""The hooks' own log: a file the site names, else syslog, else `slurm_ft.log` in the state directory.

Losing the log never stops a hook. What is an alert goes into the spool too, where the site has channels for alerts.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

from slurm_ft.alerts.spooling import SpoolingHandler
from slurm_ft.config import Config
from slurm_ft.state_file import MODE, give_to_owner_of

SYSLOG = Path("/dev/log")
FORMAT = "%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"


class OneRecord(logging.Formatter):
    """Text that a user chose begins no line of its own in the log and moves no cursor: a further line is indented."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        return "\n    ".join(_printable(line) for line in super().format(record).split("\n"))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\t" else ascii(char)[1:-1] for char in text)


def open_log(config: Config, name: str) -> logging.Logger:
    """A logger called `name` (the hook) that writes where the configuration says."""
    logger = logging.getLogger(name)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for old in logger.handlers:
        with suppress(OSError):
            old.close()
    logger.handlers = [_handler(config)]
    if config.alert_channels:
        logger.handlers.append(SpoolingHandler(config.state_dir, logger))
    return logger


class _PrivateFile(logging.handlers.WatchedFileHandler):
    """Readable by owner and group only: it names users' jobs and quotes their output. Opens it anew after a rotation.

    A file that root makes in the state directory is its owner's, since SlurmUser's hooks write there too.
    """

    def __init__(self, path: Path, flags: int) -> None:
        self._flags = flags
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        self.setFormatter(OneRecord(FORMAT))

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | self._flags, MODE)
        directory = Path(self.baseFilename).parent
        with suppress(OSError):
            give_to_owner_of(directory, descriptor)
        return os.fdopen(descriptor, "a", encoding=self.encoding, errors=self.errors)


def _handler(config: Config) -> logging.Handler:
    logging.raiseExceptions = False  # a full disk under the log must not print tracebacks into Slurm's logs
    try:
        if config.log_file:
            return _PrivateFile(config.log_file, os.O_CLOEXEC)
        if not SYSLOG.exists():  # a container, or a machine whose syslog listens elsewhere
            return _PrivateFile(config.state_dir / "slurm_ft.log", os.O_CLOEXEC | os.O_NOFOLLOW)  # perhaps SlurmUser's
        handler = logging.handlers.SysLogHandler(str(SYSLOG))
        handler.setFormatter(OneRecord("slurm_ft[%(process)d]: %(name)s: %(message)s"))
    except OSError:
        return logging.NullHandler()
    return handler

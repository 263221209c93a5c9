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
from slurm_ft.journal import give_to_owner_of

SYSLOG = Path("/dev/log")
FORMAT = "%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"


def open_log(config: Config, name: str) -> logging.Logger:
    """A logger called `name` (the hook) that writes where the configuration says."""
    logger = logging.getLogger(name)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for old in logger.handlers:
        with suppress(OSError):
            old.close()
    path = config.log_file
    if path is None and not SYSLOG.exists():  # a container, or a machine whose syslog listens elsewhere
        path = config.state_dir / "slurm_ft.log"
    logger.handlers = [_handler(path)]
    if config.alert_channels:
        logger.handlers.append(SpoolingHandler(config.state_dir, logger))
    return logger


class _PrivateFile(logging.handlers.WatchedFileHandler):
    """Readable by owner and group only: it names users' jobs and quotes their output. Opens it anew after a rotation.

    A file that root makes in the state directory is its owner's, since SlurmUser's hooks write there too.
    """

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        directory = Path(self.baseFilename).parent
        with suppress(OSError):
            give_to_owner_of(directory, descriptor)
        return os.fdopen(descriptor, "a", encoding=self.encoding, errors=self.errors)


def _handler(path: Path | None) -> logging.Handler:
    logging.raiseExceptions = False  # a full disk under the log must not print tracebacks into Slurm's logs
    try:
        if path is None:
            handler: logging.Handler = logging.handlers.SysLogHandler(str(SYSLOG))
            handler.setFormatter(logging.Formatter("slurm_ft[%(process)d]: %(name)s: %(message)s"))
        else:
            handler = _PrivateFile(path, encoding="utf-8", errors="backslashreplace")
            handler.setFormatter(logging.Formatter(FORMAT))
    except OSError:
        return logging.NullHandler()
    return handler

"""The job's side of alerting: in the job's log for its user, and in the node's syslog, where an admin finds it."""

from __future__ import annotations

import logging
import logging.handlers
import sys

from slurm_ft.alert import alert as tell
from slurm_ft.log import SYSLOG

NAME = "slurm_ft.launch"


def alert(kind: str, text: str) -> None:
    """Tell that something needs attention. `kind` is one of the words that the Comment's tag carries as `alert=`.

    Never raises: a full or closed log costs the line, never the training.
    """
    tell(_log(), f"{kind}: {text}")


def _log() -> logging.Logger:
    logging.raiseExceptions = False
    logger = logging.getLogger(NAME)
    logger.propagate = False
    stream: logging.Handler = logging.StreamHandler(sys.stderr)
    stream.setFormatter(logging.Formatter("slurm_ft: %(message)s"))
    logger.handlers = [stream]
    if SYSLOG.exists():
        try:
            syslog: logging.Handler = logging.handlers.SysLogHandler(str(SYSLOG))
        except OSError:
            return logger
        syslog.setFormatter(logging.Formatter("slurm_ft[%(process)d]: %(message)s"))
        logger.handlers = [stream, syslog]
    return logger

"""The job's side of alerting: a line in the job's log, and one in the node's syslog, where an admin finds it.

The one seam: whoever is to be told otherwise is told from here. An alert never raises and never waits.
"""

from __future__ import annotations

import logging
import logging.handlers
import sys
from contextlib import suppress

from slurm_ft.log import SYSLOG

NAME = "slurm_ft.launch"


def alert(kind: str, text: str) -> None:
    """Tell that something needs attention. `kind` is one of the words that the Comment's tag carries as `alert=`."""
    with suppress(OSError, ValueError):  # a closed or full log costs the line, never the training
        print(f"slurm_ft: ALERT {kind}: {text}", file=sys.stderr, flush=True)
    _to_syslog(f"ALERT {kind}: {text}")


def _to_syslog(line: str) -> None:
    if not SYSLOG.exists():
        return
    logging.raiseExceptions = False
    with suppress(OSError):
        handler = logging.handlers.SysLogHandler(str(SYSLOG))
        handler.setFormatter(logging.Formatter("slurm_ft[%(process)d]: %(message)s"))
        handler.handle(logging.LogRecord(NAME, logging.ERROR, "", 0, line, None, None))
        handler.close()

"""The one place from which a person is told that something needs attention. For now: a line in the log.

An alert never raises, and never waits for anybody: it is sent from hooks.
"""

from __future__ import annotations

from logging import Logger


def alert(log: Logger, what: str) -> None:
    """Tell `what` happened and what to do, in one line."""
    log.error("ALERT: %s", what)

"""How the messages of this package look: the format of DeepSpeed's logger, on standard error."""

from __future__ import annotations

import logging

FORMAT = "[%(asctime)s] [%(levelname)s] [%(filename)s:%(lineno)d:%(funcName)s] %(message)s"


def show() -> None:
    """Show what this package says, whatever the script did about logging. Handlers of its own see it as well."""
    log = logging.getLogger("datastates")
    if log.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(FORMAT))
    log.addHandler(handler)
    log.setLevel(logging.INFO)

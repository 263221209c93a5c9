"""Tells the validator beside the training what was committed. It may be absent, dead or busy: nothing waits for it."""

from __future__ import annotations

import json
import logging
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .settings import Settings

log = logging.getLogger("datastates.engine")

SOCKET_VARIABLE = "SLURM_FT_VALIDATOR_SOCKET"  # `slurm-ft run` sets it when its companion answers
ANSWER_SECONDS = 2.0
MOST_BYTES = 4096


class Companion:
    """The validator, as one training process sees it."""

    def __init__(self, settings: Settings, environ: Mapping[str, str] = os.environ) -> None:
        self._path = settings.validator_socket or environ.get(SOCKET_VARIABLE, "")
        self._warned = False

    def tell(self, checkpoint: Path) -> None:
        """Have a checkpoint validated; a warning, once, if nobody does it."""
        if not self._path:
            return
        try:
            self._ask(checkpoint)
        except (OSError, ValueError) as error:
            if not self._warned:
                log.warning(
                    "the validator on %s does not answer (%s): checkpoints are checked when a job resumes",
                    self._path,
                    error,
                )
            self._warned = True

    def _ask(self, checkpoint: Path) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(ANSWER_SECONDS)
            client.connect(self._path)
            client.sendall(json.dumps({"validate": str(checkpoint)}).encode() + b"\n")
            answer = client.recv(MOST_BYTES)
        if json.loads(answer or b"{}").get("ok") is not True:
            raise ValueError(f"it answers {answer[:200]!r}")

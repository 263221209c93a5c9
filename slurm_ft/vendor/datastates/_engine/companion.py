"""The validator beside the training, as a training process sees it: started where this node has none, and told what was
committed. It may be absent, dead or busy: no save waits for it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..validator.server import answers
from ..validator.start import start
from .ranks import local_rank

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping

    from .settings import Settings

log = logging.getLogger("datastates.engine")

SOCKET_VARIABLE = "SLURM_FT_VALIDATOR_SOCKET"  # `slurm-ft run` sets it when its companion answers
ANSWER_SECONDS = 2.0
MOST_BYTES = 4096
VENDOR = Path(__file__).parents[2]

_started: list[subprocess.Popen[bytes]] = []  # by this process; they end with it


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


def start_where_missing(environ: Mapping[str, str] = os.environ) -> None:
    """Start a validator on this node if the launcher's is on another one: then nobody answers here.

    The first rank of each node does it, and waits until it answers, for a bounded time.
    """
    address = Path(environ.get(SOCKET_VARIABLE, ""))
    if not address.name or local_rank(environ) or answers(address):
        return
    if not _is_ours(address.parent):
        _say(f"slurm_ft: WARNING: {address.parent} belongs to another user: training goes on without a validator")
        return
    path = os.pathsep.join([str(VENDOR), *filter(None, [environ.get("PYTHONPATH")])])
    process = start(sys.executable, address, {**environ, "PYTHONPATH": path}, _say)
    if process is not None:
        _started.append(process)


def _is_ours(directory: Path) -> bool:
    """Whether a directory, made if need be, is this user's or root's: another user could take the socket's place."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        return directory.lstat().st_uid in (os.getuid(), 0)
    except OSError:
        return False


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

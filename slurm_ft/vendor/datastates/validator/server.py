"""The socket: one line in, one line out, for this user's own processes.

{"validate": "/path/of/checkpoint-200"}  ->  {"ok": true}
{}                                       ->  {"ok": true}, for those who only ask whether somebody is there
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

CLIENT_SECONDS = 5.0  # what a client that says nothing may cost
MOST_BYTES = 64 << 10
ANSWER_SECONDS = 2.0


class InUseError(Exception):
    """Somebody else answers on this socket."""


class Server:
    """Listens on a Unix socket until the context ends. A socket that nobody serves any more is replaced."""

    def __init__(self, path: Path, add: Callable[[Path], None]) -> None:
        if answers(path):
            raise InUseError("another validator answers there; give each job a socket of its own")
        if path.is_socket():
            path.unlink()
        self._path = path
        mask = os.umask(0o077)
        try:
            self._server = _Listener(str(path), _Client)
        finally:
            os.umask(mask)
        self._server.add = add
        self._inode = path.stat().st_ino

    def start(self) -> None:
        """Answer, in threads."""
        threading.Thread(target=self._server.serve_forever, name="validator-socket", daemon=True).start()

    def __enter__(self) -> Server:
        """Serve until the block ends."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the socket away, if it is still ours."""
        self._server.server_close()
        with suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()


def answers(path: Path) -> bool:
    """Whether somebody serves the socket."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(ANSWER_SECONDS)
        client.connect(str(path))
        return True
    return False


class _Listener(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    add: Callable[[Path], None]

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - socketserver's signature
        """Only this user's processes, and root's: the mode of the socket says so already, on most systems."""
        credentials = request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        user = struct.unpack("3i", credentials)[1]
        return user in (os.getuid(), 0)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle is no news."""


class _Client(socketserver.StreamRequestHandler):
    timeout = CLIENT_SECONDS
    server: _Listener

    def handle(self) -> None:
        line = self.rfile.readline(MOST_BYTES)
        if line:
            self.wfile.write(json.dumps(_answer(line, self.server.add)).encode() + b"\n")


def _answer(line: bytes, add: Callable[[Path], None]) -> dict[str, object]:
    try:
        wanted = json.loads(line).get("validate")
    except (ValueError, AttributeError, RecursionError):
        return {"ok": False, "error": "one JSON object per line"}
    if wanted is None:
        return {"ok": True}
    if not isinstance(wanted, str) or not wanted.startswith("/") or "\0" in wanted:
        return {"ok": False, "error": "validate: the absolute path of a checkpoint"}
    add(Path(wanted))
    return {"ok": True}

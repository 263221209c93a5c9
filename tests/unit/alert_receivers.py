"""What alerts are sent to in tests: real servers on loopback."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ALERTMANAGER = Path("/usr/bin/prometheus-alertmanager")


@dataclass
class Endpoint:
    """An HTTP server that keeps what it was sent. `answers`: status codes, the last one for ever."""

    port: int = 0
    answers: list[int] = field(default_factory=lambda: [200])
    pause: threading.Event | None = None  # it answers once this is set
    location: str = ""
    got: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def endpoint(**settings: Any) -> Iterator[Endpoint]:
    it = Endpoint(**settings)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            it.got.append((self.path, dict(self.headers), json.loads(text or b"null")))
            if it.pause:
                it.pause.wait(60)
            code = it.answers.pop(0) if len(it.answers) > 1 else it.answers[0]
            self.send_response(code)
            if it.location:
                self.send_header("Location", it.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        it.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield it
        finally:
            server.shutdown()
            thread.join()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def alertmanager(directory: Path) -> Iterator[str]:
    """Debian's Alertmanager, which tells nobody further. Yields its URL."""
    assert ALERTMANAGER.exists(), "tools/setup.sh installs prometheus-alertmanager"
    config = directory / "alertmanager.yml"
    config.write_text("route:\n  receiver: nobody\nreceivers:\n  - name: nobody\n")
    port = free_port()
    command = [
        str(ALERTMANAGER),
        f"--config.file={config}",
        f"--storage.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    with (directory / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait_ready(f"http://127.0.0.1:{port}/-/ready", directory / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_ready(url: str, log: Path) -> None:
    for _ in range(300):
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"no Alertmanager: {log.read_text()}")


def alerts_of(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(url + "/api/v2/alerts", timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found

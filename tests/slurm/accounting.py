"""A real slurmdbd with a real MariaDB, on loopback and in a directory of their own, for a lab to report to."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_ft.lab.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db")  # Debian: slurmdbd, mariadb-server
PATIENCE = 60.0  # seconds


def missing() -> list[str]:
    """The programs that are not installed here."""
    return [name for name in PROGRAMS if shutil.which(name, path="/usr/sbin:/usr/bin") is None]


@contextmanager
def accounting(directory: Path, munge_socket: Path) -> Iterator[tuple[str, ...]]:
    """Both daemons; yields the lines for slurm.conf. slurmdbd must be there before a slurmctld that knows no database.

    Its munged is the lab's, which starts later: it is asked only when somebody connects.
    """
    sql_port, port = free_ports(2)
    with _daemon(_database(directory, sql_port), directory / "mariadbd.log"):
        _wait((directory / "my.sock").exists, directory / "mariadbd.log")
        conf = directory / "slurmdbd.conf"
        conf.write_text(_slurmdbd_conf(directory, sql_port, port, munge_socket))
        conf.chmod(0o600)
        environment = {"PATH": "/usr/sbin:/usr/bin", "SLURM_CONF": str(directory / "slurm.conf")}
        with _daemon(["slurmdbd", "-D"], directory / "slurmdbd.log", environment):
            _wait(lambda: "started" in (directory / "slurmdbd.log").read_text(), directory / "slurmdbd.log")
            yield (
                "AccountingStorageType=accounting_storage/slurmdbd",
                "AccountingStorageHost=127.0.0.1",
                f"AccountingStoragePort={port}",
                f"AccountingStoragePass={munge_socket}",
            )


def _database(directory: Path, port: int) -> list[str]:
    """Make it, with an account for slurmdbd, and return the command that serves it."""
    data, first = directory / "data", directory / "first.sql"
    first.write_text("CREATE USER slurm@'127.0.0.1';\nGRANT ALL ON *.* TO slurm@'127.0.0.1';\n")
    subprocess.run(
        ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db", "--user=root"],
        check=True, capture_output=True,
    )  # fmt: skip
    return [
        "mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={directory}/my.sock",
        "--bind-address=127.0.0.1", f"--port={port}", "--skip-name-resolve", f"--init-file={first}",
        "--innodb-buffer-pool-size=32M", f"--pid-file={directory}/my.pid",
    ]  # fmt: skip


def _slurmdbd_conf(directory: Path, sql_port: int, port: int, munge_socket: Path) -> str:
    settings = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={munge_socket}",
        "DbdHost": "localhost",
        "DbdAddr": "127.0.0.1",
        "DbdPort": port,
        "SlurmUser": "root",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "127.0.0.1",
        "StoragePort": sql_port,
        "StorageUser": "slurm",
        "PidFile": f"{directory}/slurmdbd.pid",
        "DebugLevel": "info",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


@contextmanager
def _daemon(command: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> Iterator[None]:
    env = environment or {"PATH": "/usr/sbin:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
    with log.open("wb") as output:
        process = subprocess.Popen(list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(reached: Callable[[], object], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not up within {PATIENCE:g} s: {log.read_text()[-2000:]}")
        time.sleep(0.2)

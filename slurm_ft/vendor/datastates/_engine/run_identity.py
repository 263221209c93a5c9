"""Which run a checkpoint belongs to, and whether the process that left a temporary directory still lives.

Two jobs may share one output directory. So retention deletes only what its own run wrote, and a temporary directory is
removed only if its owner is certainly gone. No clock is asked: file times lie on shared storage and clocks jump.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = 1
SLURM = "slurm-"  # begins the run id of a Slurm job


@dataclass(frozen=True)
class Owner:
    """One start of a training. `run` is the same after a requeue, `attempt` is not."""

    run: str
    attempt: str
    host: str
    boot: str
    namespace: str  # of process ids: another container's are not ours
    pid: int
    started: int  # clock ticks after boot at which the process began: a pid may be used again
    restart: int  # Slurm's restart count

    def encoded(self) -> dict[str, Any]:
        """Return the content of `owner.json`."""
        return {"schema": SCHEMA, **asdict(self)}


def this_process(environ: Mapping[str, str] = os.environ) -> Owner:
    """Return the owner that this process is. Without Slurm each start is a run of its own, until one is inherited."""
    host, unique = socket.gethostname().split(".")[0], secrets.token_hex(4)
    job = environ.get("SLURM_JOB_ID", "")
    restart = environ.get("SLURM_RESTART_COUNT", "0")
    return Owner(
        run=f"{SLURM}{job}" if job.isdigit() else f"run-{unique}",
        attempt=f"{host}-{os.getpid()}-{unique}",
        host=host,
        boot=_text(Path("/proc/sys/kernel/random/boot_id")),
        namespace=_link(Path("/proc/self/ns/pid")),
        pid=os.getpid(),
        started=_start_time(os.getpid()) or 0,
        restart=int(restart) if restart.isdigit() else 0,
    )


def is_gone(owner: Owner, me: Owner) -> bool:
    """Whether an owner certainly no longer lives. Unknown means it may."""
    if owner.attempt == me.attempt:
        return False
    if owner.run == me.run and owner.run.startswith(SLURM) and owner.restart < me.restart:
        return True  # Slurm ended that attempt before it started this one
    if owner.host != me.host or not me.boot:
        return False
    if owner.boot != me.boot:
        return True
    return owner.namespace == me.namespace and _start_time(owner.pid) != owner.started


def decode_owner(values: object) -> Owner | None:
    """Return the owner that JSON holds; None if it is not one of this schema."""
    try:
        return Owner(**{key: value for key, value in values.items() if key != "schema"})  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        return None


def read_owner(path: Path, key: str | None = None) -> Owner | None:
    """Return the owner in a JSON file, or under a key of it; None if there is none to read."""
    try:
        values = json.loads(path.read_bytes())
        return decode_owner(values if key is None else values[key])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _start_time(pid: int) -> int | None:
    """Return when a process began (field 22 of /proc/PID/stat); None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])

"""What the shell hooks noted about an attempt on this node, in the run directory.

`attempts/NODE.JOBID`, written by prolog/node_prolog: the marker it left in the kernel log (empty if it could not), the
boot id, the uptime in seconds, the job's GRES indices, Slurm's restart count, and the nodes that failovers excluded
(for prolog/task_prolog alone). A Prolog of an older version wrote the first three or five.

`ended/NODE.SLOT`, written by epilog/node_epilog (SLOT = job id modulo 1024): the job id, the first three of these
lines, and the uptime at the end. Slurm may skip the Prolog when a requeued job returns to a node within its cred_expire
(120 s): slurmd takes the job for one whose Prolog has run (22.05 source; measured). The attempt then begins where the
last one ended.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RUN_DIR_VARIABLE = "SLURM_FT_RUN_DIR"
DEFAULT_RUN_DIR = Path("/run/slurm_ft")
SLOTS = 1024
START_LINES = 3


@dataclass(frozen=True, slots=True)
class AttemptStart:
    """Where the attempt begins; all None when no Prolog ran. Uptimes are seconds since boot."""

    marker: str | None = None
    boot_id: str | None = None
    uptime: float | None = None  # when the marker was written
    since: float | None = None  # the attempt begins only here, after an earlier one behind the same marker


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt whose Prolog has run on this node and whose Epilog has not ended. `gpus` are GRES indices as text."""

    raw_id: int
    number: int
    start: AttemptStart
    gpus: str

    @property
    def name(self) -> str:
        """`12.0`: job id and restart count, as the node's records write it."""
        return f"{self.raw_id}.{self.number}"


def run_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The node's run-time directory."""
    return Path(environ.get(RUN_DIR_VARIABLE) or DEFAULT_RUN_DIR)


def read(directory: Path, node: str, raw_id: int) -> AttemptStart:
    """What the hooks wrote for this job on this node. Never raises: an unreadable note is none."""
    noted = _lines(directory / "attempts" / f"{node}.{raw_id}", 3, 5, 6)
    if noted:
        return _start(noted[:START_LINES], None)
    job, *noted = _lines(directory / "ended" / f"{node}.{raw_id % SLOTS}", 5) or [""]
    return _start(noted[:START_LINES], noted[START_LINES]) if job == str(raw_id) else AttemptStart()


def running(directory: Path, node: str) -> tuple[RunningAttempt, ...]:
    """The attempts on this node now, by job id. Never raises: a note that cannot be read whole is passed over."""
    try:
        names = sorted(path.name for path in (directory / "attempts").iterdir())
    except OSError:
        return ()
    ids = (name.removeprefix(f"{node}.") for name in names if name.startswith(f"{node}."))
    found = (_running(directory, node, int(raw_id)) for raw_id in ids if raw_id.isascii() and raw_id.isdigit())
    return tuple(attempt for attempt in found if attempt is not None)


def _running(directory: Path, node: str, raw_id: int) -> RunningAttempt | None:
    noted = _lines(directory / "attempts" / f"{node}.{raw_id}", 5, 6)
    if not noted or not noted[4].isdigit():
        return None
    return RunningAttempt(raw_id, int(noted[4]), _start(noted[:START_LINES], None), noted[3])


def exists(directory: Path, node: str, raw_id: int) -> bool:
    """Whether the job's attempt on this node has begun and not ended."""
    return (directory / "attempts" / f"{node}.{raw_id}").exists()


def _start(noted: list[str], since: str | None) -> AttemptStart:
    marker, boot_id, uptime = noted
    try:
        return AttemptStart(marker or None, boot_id or None, float(uptime), None if since is None else float(since))
    except ValueError:
        return AttemptStart()


def _lines(path: Path, *counts: int) -> list[str]:
    """All lines if there are as many as one of `counts`, else none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return lines if len(lines) in counts else []

"""Starts daemons, tells processes of a lab from all others, and ends exactly those.

A process is named by pid and start time, so that a recycled pid is never hit. What the daemons started in turn (job
steps daemonise themselves) is found by what it carries of the lab: its environment, its open files, its parents.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PROC = Path("/proc")

# In the environment of everything that a lab starts; the value is the lab's directory.
MARKER = "SLURM_FT_LAB"

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Started:
    """A process that we started. `ticks` is its start time in clock ticks since boot."""

    name: str
    pid: int
    ticks: int

    @property
    def alive(self) -> bool:
        """False also for a zombie, and for another process that was given the same pid."""
        stat = read_stat(self.pid)
        return stat is not None and stat.ticks == self.ticks


@dataclass(frozen=True, slots=True)
class Stat:
    """What /proc/PID/stat says."""

    parent: int
    terminal: int  # 0: no controlling terminal
    ticks: int


def read_stat(pid: int) -> Stat | None:
    """None when there is no such process, or only its zombie."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
    if fields[0] in "ZX":
        return None
    return Stat(parent=int(fields[1]), terminal=int(fields[4]), ticks=int(fields[19]))


def start(name: str, command: Sequence[str], env: Mapping[str, str], output: Path) -> Started:
    """Start a daemon in a session of its own, so that neither Ctrl-C nor the end of its starter reaches it."""
    pid = os.posix_spawn(
        command[0],
        list(command),
        dict(env),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        # Python ignores SIGPIPE; jobs would inherit that.
        setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM],
        setsigmask=[],
    )
    stat = read_stat(pid)
    return Started(name, pid, stat.ticks if stat else 0)


def end(processes: Iterable[Started], grace_s: float) -> None:
    """SIGTERM, then SIGKILL for what is left after the grace time. Returns when they are gone."""
    listed = list(processes)
    _send(listed, signal.SIGTERM)
    if not wait_gone(listed, grace_s):
        kill(listed)


def kill(processes: Iterable[Started]) -> None:
    """SIGKILL at once, parents first: no slurmstepd lives to report what happened to its job."""
    listed = list(processes)
    _send(listed, signal.SIGKILL)
    wait_gone(listed, 5)


def wait_gone(processes: Iterable[Started], timeout_s: float) -> bool:
    """Whether all of them ended in time."""
    listed = list(processes)
    deadline = time.monotonic() + timeout_s
    while any(process.alive for process in listed):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    _reap(listed)
    return True


def members(base: Path, slurm_conf: Path, user_id: int) -> list[Started]:
    """Every process of the lab but this one and its parents: daemons, job steps, hooks, and all their children."""
    stats = _all_stats()
    ours = _lineage(os.getpid(), stats)
    found = {pid for pid, stat in stats.items() if pid not in ours and _belongs(pid, stat, base, slurm_conf, user_id)}
    found = {pid for pid in stats if pid not in ours and found & _lineage(pid, stats)}
    return [Started(_name(pid), pid, stats[pid].ticks) for pid in sorted(found)]


def holders(processes: Iterable[Started], path: Path) -> list[Started]:
    """Those of the processes that have the file open, and their descendants."""
    listed, stats = list(processes), _all_stats()
    roots = {process.pid for process in listed if path in _open_paths(process.pid)}
    return [process for process in listed if roots & _lineage(process.pid, stats)]


def children(processes: Iterable[Started], parents: Iterable[Started]) -> list[Started]:
    """Those of the processes that descend from one of the parents."""
    stats, roots = _all_stats(), {process.pid for process in parents}
    return [process for process in processes if roots & _lineage(process.pid, stats) and process.pid not in roots]


def _belongs(pid: int, stat: Stat, base: Path, slurm_conf: Path, user_id: int) -> bool:
    env = _environment(pid)
    # SLURM_CONF alone is not enough: an admin's editor has it too.
    in_job = b"SLURM_CONF=%s" % os.fsencode(slurm_conf) in env and any(e.startswith(b"SLURM_JOB_ID=") for e in env)
    if in_job or b"%s=%s" % (MARKER.encode(), os.fsencode(base)) in env:
        return True
    # Slurm's daemons overwrite part of their environment with their title, and a user's process may have cleaned its
    # own. A person's shell in the lab's directory has a terminal.
    suspect = _name(pid).startswith("slurm") or (stat.terminal == 0 and _owner(pid) == user_id)
    return suspect and any(target.is_relative_to(base) for target in _open_paths(pid))


def _all_stats() -> dict[int, Stat]:
    pids = (int(entry) for entry in os.listdir(PROC) if entry.isdigit())  # noqa: PTH208 - names are all we need
    return {pid: stat for pid in pids if (stat := read_stat(pid)) is not None}


def _lineage(pid: int, stats: Mapping[int, Stat]) -> set[int]:
    """The process, its parent, and so on."""
    line: set[int] = set()
    while pid in stats and pid not in line:
        line.add(pid)
        pid = stats[pid].parent
    return line


def _environment(pid: int) -> list[bytes]:
    try:
        return (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _name(pid: int) -> str:
    """The program's file name: its title (comm, cmdline) can be changed by the process."""
    try:
        return (PROC / str(pid) / "exe").readlink().name.removesuffix(" (deleted)")
    except OSError:
        return ""


def _owner(pid: int) -> int:
    try:
        return (PROC / str(pid)).stat().st_uid
    except OSError:
        return -1


def _open_paths(pid: int) -> list[Path]:
    """Working directory and open files."""
    paths: list[Path] = []
    with suppress(OSError):  # the process may end meanwhile
        for link in (PROC / str(pid) / "cwd", *(PROC / str(pid) / "fd").iterdir()):
            paths.append(link.readlink())  # noqa: PERF401 - what was read before the process ended still counts
    return paths


def _send(processes: Iterable[Started], number: signal.Signals) -> None:
    for process in processes:
        if process.alive:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)


def _reap(processes: Iterable[Started]) -> None:
    """Those that are our own children stay zombies until we ask for their exit status."""
    for process in processes:
        with suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)

"""Locks that a killed compilation of a torch extension left behind: every later start waits for them, with no message.

torch's FileBaton (torch/utils/file_baton.py) creates `lock` in the extension's build directory, keeps it open while it
compiles, and removes it at the end; who finds one waits for it to vanish. A killed process leaves it for good (measured
with DeepSpeed's own operators; pytorch #189245).

A lock is stale when nobody can be holding it: no process of this machine has it open, and the user has no other job
that could. With another job running the home directory may be shared with it, so only an old lock is stale then.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "TORCH_EXTENSIONS_DIR"
LONGEST_BUILD = 1800.0  # seconds; DeepSpeed's operators take 2 to 10 minutes
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Locks:
    """What became of the locks that were found."""

    cleared: tuple[Path, ...] = ()
    kept: tuple[tuple[Path, str], ...] = ()  # with the reason


def clear(environ: Mapping[str, str], alone: Callable[[], bool]) -> Locks:
    """Remove the user's stale locks. `alone` says whether the user runs nothing but this job; it is asked only where
    there are locks. Never raises."""
    cleared: list[Path] = []
    kept: list[tuple[Path, str]] = []
    found = [lock for lock in _locks(environ) if _is_ours(lock)]
    if not found:
        return Locks()
    held, nobody_else = _open_files(), alone()
    for lock in found:
        reason = _still_needed(lock, held, alone=nobody_else)
        if not reason:
            try:
                lock.unlink(missing_ok=True)
                cleared.append(lock)
                continue
            except OSError as error:
                reason = f"it cannot be removed ({error.strerror})"
        kept.append((lock, reason))
    return Locks(tuple(cleared), tuple(kept))


def _locks(environ: Mapping[str, str]) -> Iterator[Path]:
    """Where torch puts them: <root>/<name>/lock, and by default one directory deeper, for Python and CUDA version."""
    named = environ.get(VARIABLE)
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "/nonexistent") / ".cache")
    root = Path(named) if named else cache / "torch_extensions"
    with suppress(OSError):
        yield from sorted(root.glob("*/lock" if named else "*/*/lock"))


def _is_ours(lock: Path) -> bool:
    try:
        status = lock.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def _still_needed(lock: Path, held: set[tuple[int, int]], *, alone: bool) -> str:
    """Why it has to stay; "" if it is stale."""
    try:
        status = lock.stat()
    except OSError:
        return "it vanished"
    if (status.st_dev, status.st_ino) in held:
        return "a process on this node is compiling"
    if not alone and time.time() - status.st_mtime < LONGEST_BUILD:
        return "another job of yours may be compiling"
    return ""


def _open_files() -> set[tuple[int, int]]:
    """Device and inode of every file that a process of this user has open here."""
    found: set[tuple[int, int]] = set()
    for process in PROC.iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):  # it ended, or is another user's
            found |= {(status.st_dev, status.st_ino) for status in map(os.stat, (process / "fd").iterdir())}
    return found

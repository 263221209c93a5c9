"""Whether a program that root starts can be changed by anybody else: its owner, its mode, and each directory above."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path


def problem(path: Path, owners: Collection[int] = (0,)) -> str:
    """Why `path` cannot be trusted, or "". It must exist; only the accounts `owners` (user ids) may change it.

    Links are followed, and the directories that hold them looked at too. A sticky directory such as /tmp is allowed:
    what lies in it stays its owner's.
    """
    real = path.resolve()
    if not real.exists():
        return f"{path} does not exist"
    places = dict.fromkeys((real, *real.parents, *path.absolute().parents))
    return next((why for one in places if (why := _writable(one, owners))), "")


def closed(path: Path) -> str:
    """Why not every user can read `path`, or start it, as far as its place goes; or "". It must exist."""
    real = path.resolve()
    if not real.stat().st_mode & stat.S_IROTH:
        return f"{real} is not readable by everybody"
    shut = (one for one in (*path.parents, *real.parents) if not one.stat().st_mode & stat.S_IXOTH)
    return next((f"{one} is closed to others" for one in shut), "")


def problem_below(directory: Path, owners: Collection[int] = (0,)) -> str:
    """The same of everything in a directory, the first that is found. Raises OSError."""
    for base, directories, files in os.walk(directory):
        for name in (*directories, *files):
            if why := _writable(Path(base, name), owners):
                return why
    return ""


def _writable(path: Path, owners: Collection[int]) -> str:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return ""
    if status.st_uid not in owners:
        return f"{path} belongs to user id {status.st_uid}"
    others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    return f"{path} is writable by its group or by everybody" if others and not sticky else ""

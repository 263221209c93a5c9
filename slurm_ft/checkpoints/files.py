"""The listing of one checkpoint, made once, so that every check sees the same moment.

A checkpoint is untrusted input: the walk is bounded, follows no link out of the output directory, and reads of small
files are bounded too.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import UnreadableCheckpointError
from .finding import Finding, incomplete, inconsistent

if TYPE_CHECKING:
    from collections.abc import Callable

# A checkpoint of 4,096 ranks with four files each stays below.
MOST_FILES = 100_000
MOST_DEPTH = 12
SMALL_FILE_BYTES = 32 << 20  # what read_json and read_text accept: the memory stays below 300 MB


@dataclass(frozen=True, slots=True)
class FileStat:
    """What the listing knows of one file."""

    size: int  # bytes
    mtime_ns: int
    inode: int
    mode: int
    outside: bool = False  # a link that leaves the output directory
    dangling: bool = False  # a link that points nowhere


@dataclass(frozen=True)
class Files:
    """One checkpoint: a directory with the files below it, or a single file.

    Paths are relative to `path`, with `/`; for a single file its own name is the only one.
    """

    path: Path  # absolute
    is_file: bool
    entries: dict[str, FileStat]
    overflow: bool = False  # more files than a checkpoint can have

    @property
    def name(self) -> str:
        """The entry's own name."""
        return self.path.name

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All relative paths, sorted."""
        return tuple(sorted(self.entries))

    @cached_property
    def by_directory(self) -> dict[str, tuple[str, ...]]:
        """The base names of each directory's own files; the checkpoint itself is `""`."""
        found: dict[str, list[str]] = {}
        for name in self.names:
            directory, _, base = name.rpartition("/")
            found.setdefault(directory, []).append(base)
        return {directory: tuple(bases) for directory, bases in found.items()}

    def size(self, name: str) -> int:
        """Bytes."""
        return self.entries[name].size

    def mtime(self, name: str) -> float:
        """Seconds since the epoch."""
        return self.entries[name].mtime_ns / 1e9

    @property
    def total_bytes(self) -> int:
        """The sum of all files."""
        return sum(entry.size for entry in self.entries.values())

    @property
    def newest_mtime(self) -> float:
        """Seconds since the epoch; 0 without files."""
        return max((entry.mtime_ns for entry in self.entries.values()), default=0) / 1e9

    def matching(self, glob: str) -> tuple[str, ...]:
        """Return the paths that match; `*` also matches `/`."""
        match = _matcher(glob)
        if match is None:
            return (glob,) if glob in self.entries else ()
        return tuple(filter(match, self.names))

    def has(self, *globs: str) -> bool:
        """Tell whether a path matches one of them."""
        return any(self.matching(glob) for glob in globs)

    def location(self, name: str) -> Path:
        """The absolute path of one file."""
        return self.path if self.is_file else self.path / name

    def read_bytes(self, name: str) -> bytes | None:
        """Return the content of a small file; None if it is missing or too large for one.

        Raises UnreadableCheckpointError if the storage does not answer.
        """
        entry = self.entries.get(name)
        if entry is None or entry.size > SMALL_FILE_BYTES or not stat.S_ISREG(entry.mode) or entry.outside:
            return None
        try:
            with self.location(name).open("rb") as file:
                return file.read(SMALL_FILE_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableCheckpointError(self.location(name), error) from error

    def read_text(self, name: str) -> str | None:
        """Return a small file's text, stripped; None if it is missing or no UTF-8."""
        content = self.read_bytes(name)
        try:
            return None if content is None else content.decode().strip()
        except UnicodeDecodeError:
            return None

    def read_json(self, name: str) -> Any:
        """Return a small file's JSON value; None if it is missing or cannot be parsed."""
        content = self.read_bytes(name)
        if content is None:
            return None
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            return None


@lru_cache(1024)
def _matcher(glob: str) -> Callable[[str], object] | None:
    """What tells whether a path matches; None for a glob that is a name. The layouts have a few hundred."""
    return re.compile(translate(glob)).match if any(character in glob for character in "*?[") else None


def list_files(path: Path, owner: Path) -> Files:
    """List the checkpoint at `path`; `owner` is the output directory that its links may not leave.

    Raises FileNotFoundError if it vanished, UnreadableCheckpointError if the storage does not answer.
    """
    try:
        status = path.stat()
        if not stat.S_ISDIR(status.st_mode):
            return Files(path, is_file=True, entries={path.name: _entry(status)})
        return _walk(path, owner)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileNotFoundError(error.errno, error.strerror, str(path)) from error
        raise UnreadableCheckpointError(path, error) from error


def check_link(path: Path, owner: Path) -> Finding | None:
    """Refuse a link that leaves the output directory: whatever it leads to is not this run's checkpoint."""
    try:
        if not path.is_symlink():
            return None
        inside = path.resolve(strict=True).is_relative_to(owner.resolve(strict=True))
    except FileNotFoundError:
        return incomplete("a link that points nowhere")
    except RuntimeError:  # Python before 3.13 reports a loop of links this way
        return inconsistent("a link that leads back to itself")
    except OSError as error:
        if error.errno == errno.ELOOP:
            return inconsistent("a link that leads back to itself")
        raise UnreadableCheckpointError(path, error) from error
    return None if inside else inconsistent("a link that leaves the output directory")


def _walk(path: Path, owner: Path) -> Files:
    entries: dict[str, FileStat] = {}
    todo = [(str(path), "", 0)]
    while todo:
        directory, prefix, depth = todo.pop()
        for found in _scan(directory):
            name = prefix + found.name
            if len(entries) >= MOST_FILES:
                return Files(path, is_file=False, entries=entries, overflow=True)
            if found.is_dir(follow_symlinks=False):
                if depth < MOST_DEPTH:
                    todo.append((found.path, f"{name}/", depth + 1))
            else:
                entries[name] = _linked(found, owner) if found.is_symlink() else _entry(found.stat())
    return Files(path, is_file=False, entries=entries)


def _scan(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except FileNotFoundError:  # a rotation deletes while we look: what is gone will be missed by the checks
        return []


def _entry(status: os.stat_result) -> FileStat:
    return FileStat(status.st_size, status.st_mtime_ns, status.st_ino, status.st_mode)


def _linked(found: os.DirEntry[str], owner: Path) -> FileStat:
    """Judge a link by where it leads. A linked directory counts as one odd file: frameworks make none."""
    try:
        status = found.stat()
        outside = not Path(found.path).resolve(strict=True).is_relative_to(owner.resolve(strict=True))
    except (FileNotFoundError, RuntimeError):  # Python before 3.13 reports a loop of links as RuntimeError
        return FileStat(0, 0, 0, 0, dangling=True)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return FileStat(0, 0, 0, 0, dangling=True)
        raise
    return FileStat(status.st_size, status.st_mtime_ns, status.st_ino, status.st_mode, outside=outside)

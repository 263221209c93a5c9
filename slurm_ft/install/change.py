"""The nouns of an installation, as frozen values: what is wanted (Change), how it stands, what was made (Made). No I/O.

observe -> Site -> plan -> Changes -> look -> printed, or carried out -> Made (the manifest) -> undone
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Role(str, Enum):
    """What this machine is in the cluster."""

    CONTROLLER = "controller"
    NODE = "node"
    LOGIN = "login"


@dataclass(frozen=True, slots=True)
class Place:
    """Where to install: `root` stands before every path that is written, `/` unless a staging directory was named."""

    root: Path = Path("/")

    @property
    def staged(self) -> bool:
        """Whether nothing of this very machine is touched."""
        return self.root != Path("/")

    def at(self, path: Path) -> Path:
        """Where an absolute path of the installed system is to be written."""
        return self.root / path.relative_to("/")


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory. `history`: it holds what the site has lived through, and only `--purge` removes it."""

    path: Path
    mode: int = 0o755
    owner: str = "root"
    history: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """A file. `theirs`: it is the admin's from the start, so one that is there already stays as it is."""

    path: Path
    text: str
    mode: int = 0o644
    owner: str = "root"
    theirs: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    path: Path
    target: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines at the end of slurm.conf, between two marks of ours; only with `--edit-slurm-conf`."""

    path: Path
    lines: tuple[str, ...]


Change = Directory | File | Link | Lines


class State(str, Enum):
    """How a wanted change stands."""

    DONE = "in place"
    MISSING = "missing"
    OLDER = "of an older version"  # ours, and nobody has changed it: it is replaced
    FOREIGN = "stays"  # somebody else's, or changed by hand


@dataclass(frozen=True, slots=True)
class Made:
    """One thing that an installation made. `mark` tells whether it is still as it was made: the SHA-256 of a file or
    of our lines, a link's target, `history` of such a directory."""

    kind: str  # directory, file, link, lines
    path: Path
    mark: str = ""


def describe(change: Change) -> str:
    """One line for people."""
    if isinstance(change, Directory):
        return f"directory {change.path} ({change.mode:04o} {change.owner})"
    if isinstance(change, File):
        return f"file {change.path} ({change.mode:04o} {change.owner})"
    if isinstance(change, Link):
        return f"link {change.path} -> {change.target}"
    return f"{len(change.lines)} lines in {change.path}: {'; '.join(change.lines)}"

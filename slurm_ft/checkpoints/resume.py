"""Find the newest checkpoint that training can resume from.

Candidates are tried from the highest step down, by number: `sorted()` by name puts ckpt_9 after ckpt_10. A broken one
is passed over and reported; nothing is moved, deleted or written. Storage that does not answer raises instead: an
unreadable directory is no empty directory.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from slurm_ft.checkpoints.finding import Condition, Finding, UnreadableCheckpointError
from slurm_ft.checkpoints.layouts import BY_NAME, LAYOUTS
from slurm_ft.errors import SlurmFtError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurm_ft.checkpoints.layout import Layout

T = TypeVar("T")

# A network file system may answer the second time. Seconds before each new try.
RETRY_PAUSES = (1.0, 3.0)

# Errors that a new try cannot cure.
LASTING = (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry of the output directory whose name says that it is a finished checkpoint."""

    step: int
    path: Path  # absolute


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The checkpoint to resume from. `finding` says whether it could be verified."""

    step: int
    path: Path  # absolute
    layout: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that was passed over, and why."""

    candidate: Candidate
    finding: Finding


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found. `rejected` holds the broken candidates newer than the point; all of them if it is None."""

    directory: Path  # absolute
    exists: bool
    point: ResumePoint | None
    rejected: tuple[Rejected, ...]


def find_newest_valid(output_dir: Path, framework: str, *, pauses: Sequence[float] = RETRY_PAUSES) -> Search:
    """Search one output directory; `framework` is a layout's name or `auto`.

    A directory that does not exist yet has no checkpoints. Raises UnreadableCheckpointError when the directory or a
    candidate cannot be read, after a new try for each of `pauses` (seconds).
    """
    directory = Path(os.path.abspath(output_dir))  # noqa: PTH100 - absolute, but with the user's own links in it
    names = _retry(partial(_names, directory), pauses)
    layout = _layout(framework, names or ())
    rejected: list[Rejected] = []
    for candidate in _candidates(layout, directory, names or ()):
        finding = _retry(partial(_judge, layout, directory, candidate), pauses)
        if finding.resumable:
            point = ResumePoint(candidate.step, candidate.path, layout.name, finding)
            return Search(directory, exists=True, point=point, rejected=tuple(rejected))
        rejected.append(Rejected(candidate, finding))
    return Search(directory, exists=names is not None, point=None, rejected=tuple(rejected))


def _names(directory: Path) -> tuple[str, ...] | None:
    try:
        return tuple(os.listdir(directory))  # noqa: PTH208 - names are all we need
    except FileNotFoundError as error:
        if directory.is_symlink():  # it exists, but what it leads to is not mounted here
            raise UnreadableCheckpointError(directory, error) from error
        return None
    except OSError as error:
        raise UnreadableCheckpointError(directory, error) from error


def _layout(framework: str, names: Sequence[str]) -> Layout:
    if framework == "auto":
        present = (layout for layout in LAYOUTS if any(layout.step_of(name) is not None for name in names))
        return next(present, LAYOUTS[-1])  # without candidates it makes no difference
    if framework not in BY_NAME:
        raise SlurmFtError(f"unknown framework {framework!r}", f"Use one of: auto, {', '.join(BY_NAME)}")
    return BY_NAME[framework]


def _candidates(layout: Layout, directory: Path, names: Sequence[str]) -> list[Candidate]:
    """Return the candidates, newest first. Two names with one step (ckpt_7.pt, ckpt_7.pth) keep a fixed order."""
    numbered = ((layout.step_of(name), name) for name in names)
    ordered = sorted(((step, name) for step, name in numbered if step is not None), reverse=True)
    return [Candidate(step, directory / name) for step, name in ordered]


def _judge(layout: Layout, directory: Path, candidate: Candidate) -> Finding:
    return _check_link(directory, candidate.path) or layout.check(candidate.path)


def _check_link(directory: Path, path: Path) -> Finding | None:
    """Refuse a link that leaves the directory: whatever it leads to is not this run's checkpoint."""
    try:
        if not path.is_symlink():
            return None
        inside = path.resolve(strict=True).is_relative_to(directory.resolve(strict=True))
    except FileNotFoundError:
        return Finding(Condition.INCOMPLETE, "a link that points nowhere")
    except RuntimeError:  # Python before 3.13 reports a loop of links this way
        return Finding(Condition.REFUSED, "a link that leads back to itself")
    except OSError as error:
        if error.errno == errno.ELOOP:
            return Finding(Condition.REFUSED, "a link that leads back to itself")
        raise UnreadableCheckpointError(path, error) from error
    return None if inside else Finding(Condition.REFUSED, "a link that leaves the output directory")


def _retry(read: Callable[[], T], pauses: Sequence[float]) -> T:
    if not pauses:
        return read()
    try:
        return read()
    except UnreadableCheckpointError as unreadable:
        if unreadable.error.errno in LASTING:
            raise
    time.sleep(pauses[0])
    return _retry(read, pauses[1:])

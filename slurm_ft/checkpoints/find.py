"""Find the checkpoints of an output directory, newest first, in whatever layout they are.

Newest means the highest step by number: `sorted()` by name puts ckpt_9 after ckpt_10, and modification times change
with every copy. Only a layout whose numbers mean something else has an order of its own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .candidate import Candidate
from .errors import UnknownFrameworkError, UnreadableCheckpointError
from .files import Files, list_files
from .layouts import BY_NAME, LAYOUTS
from .layouts.concurrent import CONCURRENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .layout import Layout

AUTO = "auto"
LOOK_AT = 5  # how many of the newest entries have to look like the layout's before `auto` gives up on it


@dataclass(frozen=True, slots=True)
class Candidates:
    """What an output directory holds. `entries` are newest first."""

    directory: Path  # absolute
    exists: bool
    layout: Layout
    entries: tuple[Candidate, ...]


def find_candidates(output_dir: Path, framework: str = AUTO) -> Candidates:
    """List the candidates of one layout; `auto` takes the first whose names and content are there.

    A directory that does not exist yet has none. What a loop of one's own committed stays its own, whichever framework
    was named: the Trainer's rules would call all of it incomplete, and move it away. Raises UnreadableCheckpointError,
    UnknownFrameworkError.
    """
    if framework != AUTO and framework not in BY_NAME:
        raise UnknownFrameworkError(framework, tuple(BY_NAME))
    directory = Path(os.path.abspath(output_dir))  # noqa: PTH100 - absolute, but with the user's own links in it
    exists = _names(directory) is not None
    if framework == AUTO:
        return _detect(directory, exists=exists)
    layout = BY_NAME[framework]
    found = _of_layout(layout, directory)
    if layout.entry == CONCURRENT.entry and _is(CONCURRENT, found):
        layout, found = CONCURRENT, _of_layout(CONCURRENT, directory)
    return Candidates(directory, exists, layout, found)


def find_one(path: Path, framework: str = AUTO) -> Candidate | None:
    """Return the candidate that the path itself is; None if it is none, such as an output directory."""
    path = Path(os.path.abspath(path))  # noqa: PTH100
    for layout in LAYOUTS if framework == AUTO else (BY_NAME[framework],):
        match = layout.entry.fullmatch(path.name)
        files = _listed(path) if match else None
        if match and files and layout.recognises(files) and layout.is_file in (None, files.is_file):
            number = match.groupdict().get("step")
            step = int(number) if number else _step_inside(layout, path) or 0
            return Candidate(step, path, layout, path.parent)
    return None


def _detect(directory: Path, *, exists: bool) -> Candidates:
    """Names first, then content: `checkpoint-5` alone does not tell whose it is."""
    named = Candidates(directory, exists, LAYOUTS[-1], ())
    for layout in LAYOUTS if exists else ():
        found = _of_layout(layout, directory)
        if _is(layout, found):
            return Candidates(directory, exists, layout, found)
        if found and not named.entries:
            named = Candidates(directory, exists, layout, found)
    return named


def _is(layout: Layout, found: Sequence[Candidate]) -> bool:
    return any(_looks_like(layout, candidate) for candidate in found[:LOOK_AT])


def _looks_like(layout: Layout, candidate: Candidate) -> bool:
    try:
        return layout.recognises(list_files(candidate.path, candidate.owner))
    except FileNotFoundError:
        return False


def _of_layout(layout: Layout, directory: Path) -> tuple[Candidate, ...]:
    """Two entries with one step (ckpt_7.pt, ckpt_7.pth) keep a fixed order; of two places the later one wins."""
    found = [
        (_key(layout, candidate), place, candidate.path.name, candidate)
        for place, candidate in _entries(layout, directory)
    ]
    return tuple(entry[-1] for entry in sorted(found, key=lambda entry: entry[:3], reverse=True))


def _entries(layout: Layout, directory: Path) -> Iterator[tuple[int, Candidate]]:
    for index, place in enumerate(layout.places):
        for where in [directory] if place == "." else sorted(directory.glob(place)):
            for name in _names(where) or ():
                match = layout.entry.fullmatch(name)
                number = match.groupdict().get("step") if match else None
                step = int(number) if number else _step_inside(layout, where / name) if match else None
                if step is not None:
                    yield index, Candidate(step, where / name, layout, directory)


def _step_inside(layout: Layout, path: Path) -> int | None:
    """The step of a checkpoint without a number in its name: 0 if it tells none, None if it is no checkpoint.

    Any directory may have such a name, so its content has to look like the layout's.
    """
    files = _listed(path)
    if (
        files is None
        or (layout.is_file is not None and layout.is_file is not files.is_file)
        or not layout.recognises(files)
    ):
        return None
    return (layout.step(files) if layout.step else None) or 0


def _key(layout: Layout, candidate: Candidate) -> tuple[float, ...]:
    if layout.order is None:
        return (candidate.step,)
    files = _listed(candidate.path)
    return layout.order(files, candidate.step) if files else (float(candidate.step),)


def _listed(path: Path) -> Files | None:
    try:
        return list_files(path, path.parent)
    except FileNotFoundError:
        return None


def _names(directory: Path) -> tuple[str, ...] | None:
    """Return the directory's names; None if it does not exist. An unreadable directory is no empty one."""
    try:
        return tuple(os.listdir(directory))  # noqa: PTH208 - names are all we need
    except FileNotFoundError as error:
        if directory.is_symlink():  # it exists, but what it leads to is not mounted here
            raise UnreadableCheckpointError(directory, error) from error
        return None
    except OSError as error:
        raise UnreadableCheckpointError(directory, error) from error

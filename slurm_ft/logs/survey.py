"""Look at the files of a job's output: which are there, and which attempts they hold."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_ft.as_user import open_regular
from slurm_ft.checkpoints import printable
from slurm_ft.errors import SlurmFtError
from slurm_ft.logs.files import LogFile
from slurm_ft.logs.parts import Part, divide, find_marks, of_job
from slurm_ft.sensors.job_output import fitting

BLOCK = 1 << 16  # bytes


class UnreadableLogError(SlurmFtError):
    """A file of the job's output is there and cannot be read, or none of them is there."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """One attempt in one file."""

    path: str
    part: Part


@dataclass(frozen=True, slots=True)
class Survey:
    """What is there: the attempts in their order, and the files with the number of bytes that were looked at."""

    chapters: tuple[Chapter, ...]
    seen: dict[str, int]


def survey(files: Sequence[LogFile], job: str = "") -> Survey:
    """Look into each file that is there, for the attempts of one job (its raw id as text; "" for all that are in it).

    Raises UnreadableLogError for one that cannot be read.
    """
    chapters: list[Chapter] = []
    seen: dict[str, int] = {}
    for file in present(files):
        try:
            descriptor = open_regular(file.path, os.O_RDONLY)
        except OSError as error:
            raise UnreadableLogError(
                f"{printable(file.path)} cannot be read: {error.strerror}", _advice(error)
            ) from error
        try:
            size = os.fstat(descriptor).st_size
            parts = divide(find_marks(descriptor, size), size)
        finally:
            os.close(descriptor)
        seen[file.path] = size
        chapters += [Chapter(file.path, _placed(part, file)) for part in (of_job(parts, job) if job else parts)]
    chapters.sort(key=lambda chapter: chapter.part.restart or 0)  # stable: standard output stays before standard error
    return Survey(tuple(chapters), seen)


def present(files: Sequence[LogFile]) -> list[LogFile]:
    """Those that are there by their exact names; where none is, those that fit the loose ones, oldest first."""
    exact = [file for file in files if os.path.lexists(file.path)]
    if exact:
        return exact
    paths = dict.fromkeys(path for file in files if file.loose for path in _fitting(file.loose))
    return [LogFile(path, place) for place, path in enumerate(sorted(paths, key=_changed))]


def _fitting(loose: str) -> list[str]:
    try:
        return fitting(loose)
    except OSError:
        return []


def _changed(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0


def _placed(part: Part, file: LogFile) -> Part:
    """A part that no mark dates belongs to the attempt that began the file, or to one of those after it."""
    if part.restart is not None:
        return part
    restart = file.restart + max(int(part.attempt) - 1, 0) if part.attempt.isdigit() else file.restart
    return replace(part, restart=restart, attempt=str(restart + 1))


def chosen(found: Survey, attempt: str) -> tuple[Chapter, ...]:
    """The chapters of one attempt, of the newest (`last`), or all. Raises SlurmFtError where there is no such one."""
    numbers = list(dict.fromkeys(chapter.part.attempt for chapter in found.chapters))
    if not attempt:
        return found.chapters
    wanted = numbers[-1] if attempt == "last" and numbers else attempt
    if wanted not in numbers:
        there = f"It holds attempt {', '.join(numbers)}" if numbers else "It is empty"
        raise SlurmFtError(f"the log holds no attempt {attempt!r}", there)
    return tuple(chapter for chapter in found.chapters if chapter.part.attempt == wanted)


def last_lines(chapters: Sequence[Chapter], lines: int) -> tuple[Chapter, ...]:
    """The end of the chapters, `lines` lines together. Raises OSError."""
    left, kept = lines, []
    for chapter in reversed(chapters):
        if left <= 0:
            break
        descriptor = open_regular(chapter.path, os.O_RDONLY)
        try:
            start, counted = _back(descriptor, chapter.part, left)
        finally:
            os.close(descriptor)
        left -= counted
        kept.append(replace(chapter, part=replace(chapter.part, start=start)))
    return tuple(reversed(kept))


def _back(descriptor: int, part: Part, lines: int) -> tuple[int, int]:
    """Where the last `lines` lines of the part begin, and how many there are."""
    place, counted = part.end, 0
    if place > part.start and os.pread(descriptor, 1, place - 1) == b"\n":
        place -= 1  # the line break of the last line
    while place > part.start:
        begin = max(place - BLOCK, part.start)
        block = os.pread(descriptor, place - begin, begin)
        while (found := block.rfind(b"\n")) >= 0:
            counted += 1
            if counted == lines:
                return begin + found + 1, counted
            block = block[:found]
        place = begin
    return part.start, counted + 1


def _advice(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "Only its owner and root may read it"
    return "Only a regular file is read: what is it?"

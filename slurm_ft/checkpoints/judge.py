"""Judge one checkpoint at a level: its listing, the content of its files, its layout's own rules, then every byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from . import deep
from .content import Content, check_content
from .errors import UnreadableCheckpointError
from .files import Files, check_link, list_files
from .finding import VALID, Finding, Level, combine, corrupt, incomplete, inconsistent, note
from .progress import Silent
from .states import states_of
from .structure import check_structure, count_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .candidate import Candidate
    from .layout import Layout, State
    from .progress import Progress

MOST_SIBLINGS = 3  # a run saves the same things each time: a few tell


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was found, and how closely it was looked at. `states` is empty at the quick level."""

    finding: Finding
    level: Level
    files: Files | None = None
    world_size: int | None = None
    states: dict[State, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """How to judge: the level, the job's world size if it is known, and the bounds of a deep check."""

    level: Level = Level.STRUCTURAL
    world_size: int | None = None  # of the job that wants to load it
    deadline: float | None = None  # time.monotonic
    progress: Progress = field(default_factory=Silent)
    listing: Callable[[Path, Path], Files] = list_files  # of neighbours; a choice remembers the last few


def judge(candidate: Candidate, request: Request, siblings: Sequence[Candidate] = ()) -> Judgement:
    """Judge a candidate. Raises UnreadableCheckpointError when the storage does not answer."""
    link = check_link(candidate.path, candidate.owner)
    if link is not None:
        return Judgement(link, Level.QUICK)
    try:
        files = list_files(candidate.path, candidate.owner)
    except FileNotFoundError:
        return Judgement(incomplete("it vanished during the check"), Level.QUICK)
    kind = _wrong_kind(files, candidate.layout)
    if kind is not None:
        return Judgement(kind, Level.QUICK, files)
    return _judge_files(candidate, files, request, _lister(siblings, request.listing))


def _lister(siblings: Sequence[Candidate], listing: Callable[[Path, Path], Files]) -> Callable[[], Sequence[Files]]:
    @cache
    def listed() -> Sequence[Files]:
        found = []
        for sibling in siblings[:MOST_SIBLINGS]:
            try:
                found.append(listing(sibling.path, sibling.owner))
            except FileNotFoundError:
                continue
        return [files for files in found if files.entries]

    return listed


def _wrong_kind(files: Files, layout: Layout) -> Finding | None:
    if layout.is_file is True and not files.is_file:
        return corrupt("a directory where a file should be")
    if layout.is_file is False and files.is_file:
        return corrupt("no directory")
    return None if files.entries else incomplete("empty directory")


def _judge_files(
    candidate: Candidate, files: Files, request: Request, siblings: Callable[[], Sequence[Files]]
) -> Judgement:
    layout = candidate.layout
    world_size = layout.world_size(files) if layout.world_size and request.level > Level.QUICK else None
    findings = list(check_structure(files, layout, world_size, siblings))
    if request.level is Level.QUICK and not combine(finding for _, finding in findings).resumable:
        return Judgement(_sum_up(files, findings), Level.QUICK, files, count_ranks(files, layout))
    content = check_content(files, request.level)
    findings += [
        *content.findings,
        *(("", finding) for finding in _own_rules(candidate, files, request, world_size)),
    ]
    level = min(request.level, Level.STRUCTURAL)
    if request.level is Level.DEEP and combine(finding for _, finding in findings).resumable:
        level, deeper = _read(files, content, request)
        findings.extend(deeper)
    states = states_of(files, layout) if request.level > Level.QUICK else {}
    return Judgement(_sum_up(files, findings), level, files, world_size or count_ranks(files, layout), states)


def _own_rules(candidate: Candidate, files: Files, request: Request, world_size: int | None) -> Iterator[Finding]:
    """The layout's rules, the step inside against the one in the name, and the world size against the job's."""
    layout = candidate.layout
    step = layout.step(files) if layout.step else None
    if step is not None and "step" in layout.entry.groupindex and step != candidate.step:
        yield inconsistent(f"its name says step {candidate.step}, its content step {step}")
    if layout.same_world and world_size and request.world_size and world_size != request.world_size:
        yield inconsistent(f"saved by {world_size} ranks, and this job has {request.world_size}")
    if layout.check is not None:
        yield from layout.check(files, request.level)


def _read(files: Files, content: Content, request: Request) -> tuple[Level, list[tuple[str, Finding]]]:
    try:
        outcome = deep.run(content.readings, request.progress, request.deadline, files.name)
    except OSError as error:
        raise UnreadableCheckpointError(error.filename or files.path, error) from error
    if outcome.complete:
        return Level.DEEP, list(outcome.findings)
    share = 100 * outcome.read // max(outcome.total, 1)
    stopped = note(f"the time allowed for reading it ended after {share} %")
    return Level.STRUCTURAL, [*outcome.findings, ("", stopped)]


def _sum_up(files: Files, findings: Sequence[tuple[str, Finding]]) -> Finding:
    """Combine, with the file's name before each reason and note."""
    return combine(_named(name, finding, files) for name, finding in findings) if findings else VALID


def _named(name: str, finding: Finding, files: Files) -> Finding:
    if not name or files.is_file:
        return finding
    reason = f"{name}: {finding.reason}" if finding.reason else ""
    return replace(finding, reason=reason)

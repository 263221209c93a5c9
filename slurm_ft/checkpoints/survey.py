"""Judge every checkpoint of a directory, for a person who wants to see them all. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import UnreadableCheckpointError
from .find import AUTO, find_candidates, find_one
from .finding import Finding, Level, Verdict
from .judge import Judgement, Request, judge

if TYPE_CHECKING:
    from pathlib import Path

    from .candidate import Candidate


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One checkpoint, judged; one that could not be read is a row like the others."""

    candidate: Candidate
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class Survey:
    """The checkpoints of a directory, newest first."""

    directory: Path  # absolute
    rows: tuple[Surveyed, ...]

    @property
    def worst(self) -> Verdict | None:
        """UNREADABLE if one is, else a verdict that is not resumable, else None."""
        verdicts = [row.judgement.finding for row in self.rows if not row.judgement.finding.resumable]
        unreadable = any(finding.verdict is Verdict.UNREADABLE for finding in verdicts)
        return Verdict.UNREADABLE if unreadable else verdicts[0].verdict if verdicts else None


def survey(directory: Path, framework: str = AUTO, request: Request | None = None) -> Survey:
    """Judge each checkpoint of an output directory, or the one checkpoint that the path itself is.

    Raises UnreadableCheckpointError if the directory cannot be listed, UnknownFrameworkError.
    """
    one = find_one(directory, framework)
    found = None if one else find_candidates(directory, framework)
    entries = [one] if one else list(found.entries) if found else []
    rows = (
        Surveyed(entry, _judge(entry, request or Request(), [*entries[place + 1 :], *reversed(entries[:place])]))
        for place, entry in enumerate(entries)
    )
    return Survey(found.directory if found else directory.absolute(), tuple(rows))


def _judge(candidate: Candidate, request: Request, siblings: list[Candidate]) -> Judgement:
    try:
        return judge(candidate, request, siblings)
    except UnreadableCheckpointError as error:
        return Judgement(Finding(Verdict.UNREADABLE, error.what), Level.QUICK)

"""Choose the newest checkpoint that training can resume from.

Candidates are tried from the newest back. A broken one is passed over and reported; nothing is moved, deleted or
written here. Storage that does not answer raises instead: an unreadable checkpoint is no reason to take an older one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from .errors import NoValidCheckpointError
from .files import list_files
from .find import AUTO, find_candidates
from .finding import Finding, Level, Verdict, combine
from .judge import MOST_SIBLINGS, Judgement, Request, judge
from .layout import ResumePoint
from .progress import Silent
from .storage_retry import RETRY_PAUSES, retried
from .verdict_cache import VerdictCache

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .candidate import Candidate
    from .layout import Layout
    from .progress import Progress

# Without a level of its own, a checkpoint below this size is read whole: a second or two. Larger ones are not.
READ_WHOLE_BYTES = 2 << 30

# A candidate that changed so few seconds ago may still be growing on a slow network file system: it is waited for once.
FRESH_SECONDS = 60.0


REFUSED = Judgement(Finding(Verdict.INCONSISTENT, "refused by another rank"), Level.QUICK)


@dataclass(frozen=True, slots=True)
class Policy:
    """How to choose. `level` None: structural for all, and deep for what is small enough."""

    level: Level | None = None
    on_no_valid: str = "scratch"  # or "fail"
    degraded: bool = True  # whether a checkpoint with a part of its state missing will do
    budget_seconds: float | None = 300.0  # for reading whole checkpoints
    settle_seconds: float = 5.0  # how long to wait once for a candidate that was just written
    world_size: int | None = None  # of the job, if it is known
    at_most_step: int | None = None
    exclude: frozenset[Path] = frozenset()  # candidates that somebody else refused, such as another rank
    cache: bool = True
    pauses: Sequence[float] = RETRY_PAUSES
    progress: Progress = field(default_factory=Silent)


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
    layout: Layout
    point: ResumePoint | None
    rejected: tuple[Rejected, ...]
    judgement: Judgement | None = None  # of the point


def choose(output_dir: Path, framework: str = AUTO, policy: Policy | None = None) -> Search:
    """Search one output directory; `framework` is a layout's name or `auto`.

    Raises UnreadableCheckpointError when the directory or a candidate cannot be read, after a new try for each of the
    policy's pauses; NoValidCheckpointError if there are candidates, none is valid, and the policy is to fail then.
    """
    policy = policy or Policy()
    found = retried(partial(find_candidates, output_dir, framework), policy.pauses)
    entries = [entry for entry in found.entries if policy.at_most_step is None or entry.step <= policy.at_most_step]
    search = Search(found.directory, found.exists, found.layout, None, ())
    judged = _Judged(policy, VerdictCache(found.directory) if policy.cache else None)
    weights: Search | None = None
    for place, candidate in enumerate(entries):
        siblings = [*entries[place + 1 :], *reversed(entries[:place])]
        judgement = REFUSED if candidate.path in policy.exclude else judged.judge(candidate, siblings)
        if _acceptable(judgement.finding, policy):
            return _found(search, candidate, judgement)
        if judgement.finding.verdict is Verdict.WEIGHTS_ONLY and found.layout.weights_suffice and weights is None:
            weights = _found(search, candidate, judgement)
        search = replace(search, rejected=(*search.rejected, Rejected(candidate, judgement.finding)))
    if weights is not None:
        return weights
    if search.rejected and policy.on_no_valid == "fail":
        reasons = [f"{entry.candidate.path.name} {entry.finding.verdict.value}" for entry in search.rejected]
        raise NoValidCheckpointError(found.directory, reasons)
    return search


def _found(search: Search, candidate: Candidate, judgement: Judgement) -> Search:
    point = ResumePoint(candidate.step, candidate.path, search.layout.name, judgement.finding, judgement.level)
    return replace(search, point=point, judgement=judgement)


def _acceptable(finding: Finding, policy: Policy) -> bool:
    return finding.resumable and (policy.degraded or finding.verdict is Verdict.VALID)


class _Judged:
    """Judges candidates as the policy says: retries, one wait for a fresh one, the cache, the shared time budget."""

    def __init__(self, policy: Policy, cache: VerdictCache | None) -> None:
        self.policy, self.cache, self.waited = policy, cache, False
        budget = policy.budget_seconds
        self.deadline = None if budget is None else time.monotonic() + budget
        self.listing = lru_cache(2 * MOST_SIBLINGS)(list_files)  # the neighbours of one are the next one's too

    def judge(self, candidate: Candidate, siblings: Sequence[Candidate]) -> Judgement:
        """Judge; a fresh candidate that does not look whole is judged once more after a wait."""
        judgement = self._once(candidate, siblings)
        if judgement.finding.resumable or self.waited or not _fresh(judgement):
            return judgement
        self.waited = True
        time.sleep(self.policy.settle_seconds)
        return self._once(candidate, siblings)

    def _once(self, candidate: Candidate, siblings: Sequence[Candidate]) -> Judgement:
        wanted = self.policy.level
        first = self._at(min(wanted or Level.STRUCTURAL, Level.STRUCTURAL), candidate, siblings)
        if not first.finding.resumable or first.files is None:
            return first
        if wanted is None:
            wanted = Level.DEEP if first.files.total_bytes <= READ_WHOLE_BYTES else Level.STRUCTURAL
        return self._deep(first, candidate, siblings) if wanted is Level.DEEP else first

    def _deep(self, first: Judgement, candidate: Candidate, siblings: Sequence[Candidate]) -> Judgement:
        """Read every byte, unless these very files have been read before."""
        known = self.cache.get(first.files) if self.cache and first.files else None
        if known is not None:
            return replace(first, finding=combine((first.finding, known)), level=Level.DEEP)
        judgement = self._at(Level.DEEP, candidate, siblings)
        if self.cache and judgement.files is not None and judgement.level is Level.DEEP and not _fresh(judgement):
            self.cache.put(judgement.files, judgement.finding)
        return judgement

    def _at(self, level: Level, candidate: Candidate, siblings: Sequence[Candidate]) -> Judgement:
        request = Request(level, self.policy.world_size, self.deadline, self.policy.progress, self.listing)
        return retried(partial(judge, candidate, request, siblings), self.policy.pauses)


def _fresh(judgement: Judgement) -> bool:
    """Changed within the last minute; a clock that is ahead of ours counts too."""
    return judgement.files is not None and time.time() - judgement.files.newest_mtime < FRESH_SECONDS

"""Carry out a choice: move aside what the framework would pick instead, and set its trackers. Changes files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .candidate import Candidate
from .choose import Rejected
from .finding import inconsistent
from .layout import OwnLatest, ResumeBy
from .layouts import BY_NAME
from .quarantine import Moved, quarantine
from .trackers import repair_trackers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .choose import Search

QUARANTINE_CHOICES = ("auto", "always", "never")


@dataclass(frozen=True, slots=True)
class Actions:
    """What was changed."""

    moved: tuple[Moved, ...] = ()
    trackers: tuple[Path, ...] = ()


def act_on(search: Search, *, quarantine_when: str = "auto", job_id: str = "manual") -> Actions:
    """Move broken checkpoints aside and repair trackers, as the layout needs. Raises CheckpointError.

    `auto` moves only what the framework's own "latest" would pick: it takes the highest number or the newest time, and
    the broken ones are newer than the point. With a tracker, setting it is enough; where none is valid, it goes aside.
    """
    moved = [
        quarantine(search.directory, rejected, job_id)
        for rejected in (search.rejected if _to_move(search, quarantine_when) else ())
    ]
    if quarantine_when != "never":
        moved += [quarantine(search.directory, tracker, job_id) for tracker in _misleading_trackers(search)]
    trackers = repair_trackers(search.layout, search.point) if search.point else ()
    return Actions(tuple(filter(None, moved)), trackers)


def _to_move(search: Search, when: str) -> bool:
    if when == "auto":
        return search.layout.own_latest in (OwnLatest.NUMBER, OwnLatest.MTIME)
    return when == "always"


def _misleading_trackers(search: Search) -> Iterator[Rejected]:
    """Trackers beside broken checkpoints, and not beside the point: the framework would load what they name."""
    places = dict.fromkeys(rejected.candidate.path.parent for rejected in search.rejected)
    if search.point:
        places.pop(search.point.path.parent, None)
    for tracker in search.layout.trackers:
        for path in (place / tracker.name for place in places if not tracker.inside):
            if path.is_file():
                candidate = Candidate(0, path, search.layout, search.directory)
                yield Rejected(candidate, inconsistent("it names a checkpoint, and none beside it is valid"))


def resume_by(search: Search) -> ResumeBy:
    """Return what makes the framework start at the point; nothing without one."""
    return BY_NAME[search.point.layout].resume(search.point) if search.point else ResumeBy()

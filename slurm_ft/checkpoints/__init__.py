"""Checkpoints of training frameworks: their layouts, whether one is sound, and which one to resume from.

find -> judge -> choose -> act: only `act_on` and `restore` change files. Nothing here imports torch: the choice is made
on the batch host, once per attempt, before the training starts. The package imports nothing but the standard library
and itself, so that a training's Python can use it from the vendor folder.
"""

from __future__ import annotations

from .act import Actions, act_on, resume_by
from .candidate import Candidate
from .choose import Policy, Rejected, Search, choose
from .counters import count_search
from .errors import CheckpointError, NoValidCheckpointError, UnreadableCheckpointError
from .find import Candidates, find_candidates
from .finding import Finding, Level, Verdict
from .judge import Judgement, Request, judge
from .layout import Layout, Part, ResumeBy, ResumePoint, State, Tracker
from .printable import printable
from .quarantine import Moved, quarantine, quarantined, restore
from .resume_record import read_record, write_record
from .room import Room, room_for_another
from .states import states_of, warnings
from .trackers import repair_trackers

__all__ = [
    "Actions",
    "Candidate",
    "Candidates",
    "CheckpointError",
    "Finding",
    "Judgement",
    "Layout",
    "Level",
    "Moved",
    "NoValidCheckpointError",
    "Part",
    "Policy",
    "Rejected",
    "Request",
    "ResumeBy",
    "ResumePoint",
    "Room",
    "Search",
    "State",
    "Tracker",
    "UnreadableCheckpointError",
    "Verdict",
    "act_on",
    "choose",
    "count_search",
    "find_candidates",
    "judge",
    "printable",
    "quarantine",
    "quarantined",
    "read_record",
    "repair_trackers",
    "restore",
    "resume_by",
    "room_for_another",
    "states_of",
    "warnings",
    "write_record",
]

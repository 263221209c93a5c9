"""How a framework lays out its checkpoints: one `Layout` is one row of the table in `layouts/`.

A layout says which entries of an output directory are checkpoints, what belongs to a whole one, what the framework
itself would pick, and how it is made to start at the chosen one. How the single files are judged is not its business:
each file goes through the shared checker of its format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re
    from pathlib import Path

    from .files import Files
    from .finding import Finding, Level


class State(str, Enum):
    """The parts of a training's state, in the order of the table that users know. The first three are required."""

    MODEL = "model"
    OPTIMIZER = "optimizer"
    STEP = "epoch/step"
    SCHEDULER = "LR scheduler"
    SCALER = "GradScaler"
    RNG = "RNG"
    SAMPLER = "sampler"
    CUSTOM = "custom"


REQUIRED_STATES = (State.MODEL, State.OPTIMIZER, State.STEP)


class Need(Enum):
    """What it means when a part is missing."""

    REQUIRED = "required"  # the save was interrupted
    EXPECTED = "expected"  # training can go on, degraded
    OPTIONAL = "optional"  # only the state table tells


class OwnLatest(Enum):
    """What the framework resumes from if it is left alone."""

    NONE = "nothing: the script is given a path"
    NUMBER = "the highest number, broken or not"
    MTIME = "the newest modification time"
    TRACKER = "what its tracker file names"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a checkpoint. `files` are alternatives: globs on the relative path, where `*` also matches `/`.

    `ranks` is searched in the matching paths. Its group `rank` has to count from 0 without a gap; a group `of` is the
    number of ranks that the name itself tells, all of which have to be there.
    """

    state: State
    files: tuple[str, ...]
    need: Need = Need.REQUIRED
    ranks: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The checkpoint to resume from, and how far it was looked at."""

    step: int
    path: Path  # absolute
    layout: str
    finding: Finding
    level: Level


@dataclass(frozen=True, slots=True)
class ResumeBy:
    """What makes the framework start at the point: more environment, more arguments for its command line."""

    environ: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tracker:
    """A small file that names the newest checkpoint, beside the checkpoints or, with `inside`, within each."""

    name: str
    text: Callable[[ResumePoint], str]
    inside: bool = False


def by_path(_point: ResumePoint) -> ResumeBy:
    """The script reads CKPT_LAST_PATH itself; nothing more is needed."""
    return ResumeBy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One framework's layout."""

    name: str  # what `--framework` takes
    title: str  # the framework's name for people
    entry: re.Pattern[str]  # full match of an entry's name; a group `step` is its number
    is_file: bool | None = False  # an entry is a single file, a directory, or (None) either
    places: tuple[str, ...] = (".",)  # where entries lie, relative to the output directory; globs allowed
    parts: tuple[Part, ...] = ()
    marker: str = ""  # the file that is written last
    unfinished: tuple[str, ...] = ()  # present while it is written or deleted; `../{name}-x` lies beside the entry
    recognise: Callable[[Files], bool] | None = None  # for `auto`; None: one of the required parts is there
    step: Callable[[Files], int | None] | None = None  # the step inside; must equal the one in the name
    order: Callable[[Files, int], tuple[float, ...]] | None = None  # the newest is the greatest; None: by step
    world_size: Callable[[Files], int | None] | None = None  # how many ranks wrote it
    same_world: bool = False  # it can be loaded by as many ranks only
    check: Callable[[Files, Level], Iterable[Finding]] | None = None  # rules of its own
    states: Callable[[Files], Iterable[tuple[State, str]]] | None = (
        None  # states inside files, and where: (state, file)
    )
    own_latest: OwnLatest = OwnLatest.NONE
    weights_suffice: bool = False  # without any whole checkpoint, one with a model alone is better than none
    trackers: tuple[Tracker, ...] = ()
    resume: Callable[[ResumePoint], ResumeBy] = by_path
    exports: tuple[str, ...] = ()  # the variables that `resume` may set: unset when training starts from scratch

    def recognises(self, files: Files) -> bool:
        """Tell whether the content looks like this layout's: names such as `checkpoint-5` are used by several."""
        if self.recognise is not None:
            return self.recognise(files)
        return any(files.has(*part.files) for part in self.parts if part.need is Need.REQUIRED)

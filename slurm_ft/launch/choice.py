"""What was chosen for an attempt, as the training has to be told."""

from __future__ import annotations

import io
import os
import pickle
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_ft.checkpoints import Actions, Room, Search, resume_by
from slurm_ft.checkpoints.layout import Layout
from slurm_ft.checkpoints.layouts import BY_NAME

VARIABLES = ("CKPT_LAST_STEP", "CKPT_LAST_PATH", "CKPT_LAYOUT", "CKPT_VERDICT", "CKPT_RESUME_ARGS")
EXTRAS = tuple(dict.fromkeys(name for layout in BY_NAME.values() for name in layout.exports))


@dataclass(frozen=True, slots=True)
class Choice:
    """The search, and what was done so that the framework's own "latest" agrees with it."""

    search: Search
    actions: Actions
    before: int | None = None  # the step that the last attempt went on from, as the record beside the directory says
    room: Room | None = None  # for the next save

    @property
    def step(self) -> int | None:
        """Where training starts; None for from scratch."""
        return self.search.point.step if self.search.point else None

    @property
    def saved(self) -> int | None:
        """When the newest file of that checkpoint was written, in unix seconds; None if there is none to look at."""
        judgement = self.search.judgement
        files = judgement.files if judgement and self.search.point else None
        return int(files.newest_mtime) if files and files.entries else None

    @property
    def lost(self) -> bool:
        """Whether all checkpoints are gone that an earlier attempt had: deleted before a newer one was whole."""
        return self.search.point is None and not self.search.rejected and self.before is not None

    @property
    def arguments(self) -> tuple[str, ...]:
        """What the framework's own command line needs."""
        return resume_by(self.search).arguments

    @property
    def environ(self) -> Mapping[str, str | None]:
        """The variables for the training. None: not set, since scripts test whether one is, and not what it says."""
        unset: dict[str, str | None] = dict.fromkeys((*VARIABLES, *EXTRAS))
        if self.search.point is None:
            return unset
        point, by = self.search.point, resume_by(self.search)
        words = shlex.join(by.arguments)
        values = (str(point.step), os.fspath(point.path), point.layout, point.finding.verdict.value, words)
        return {**unset, **dict(zip(VARIABLES, values, strict=True)), **by.environ}

    def encode(self) -> bytes:
        """For the process that waits for this one."""
        buffer = io.BytesIO()
        _Writer(buffer).dump(self)
        return buffer.getvalue()

    @classmethod
    def decode(cls, content: bytes) -> Choice:
        """What `encode` wrote in a process of our own."""
        choice = _Reader(io.BytesIO(content)).load()
        if not isinstance(choice, cls):
            raise TypeError(f"{type(choice).__name__} is no choice")
        return choice


class _Writer(pickle.Pickler):
    """A layout travels by its name: its rules are functions."""

    def persistent_id(self, obj: Any) -> str | None:
        return obj.name if isinstance(obj, Layout) else None


class _Reader(pickle.Unpickler):
    def persistent_load(self, pid: str) -> Layout:
        return BY_NAME[pid]

"""What was chosen for an attempt, as the training has to be told."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from slurm_ft.checkpoints import Actions, Search, resume_by
from slurm_ft.checkpoints.layouts import BY_NAME

VARIABLES = ("CKPT_LAST_STEP", "CKPT_LAST_PATH", "CKPT_LAYOUT", "CKPT_VERDICT", "CKPT_RESUME_ARGS")
EXTRAS = tuple(dict.fromkeys(name for layout in BY_NAME.values() for name in layout.exports))


@dataclass(frozen=True, slots=True)
class Choice:
    """The search, and what was done so that the framework's own "latest" agrees with it."""

    search: Search
    actions: Actions

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

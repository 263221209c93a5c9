"""Watch, beside the training, whether it goes on from the step that was chosen."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from slurm_ft.checkpoints import CheckpointError, find_candidates
from slurm_ft.launch.continuation import Conclusion, Saved, from_checkpoints, from_line
from slurm_ft.launch.log_reader import LogReader
from slurm_ft.launch.start import Training

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between two looks; each pause is a quarter longer than the last
LOOKED_INTO = 16  # checkpoints at each end of the list whose files are looked at; of the others, only the name
FILES_LOOKED_AT = 2000  # of one checkpoint


class Follower:
    """One watch, from before the start until it is known, or until the training ends."""

    def __init__(self, training: Training, chosen: int, directory: Path, layout: str) -> None:
        self._training, self._chosen, self._directory, self._layout = training, chosen, directory, layout
        self._log = LogReader()
        self._before = saved(directory, layout)

    def conclude(self) -> Conclusion | None:
        """Wait for a sign; None when the training ended without one."""
        pause = FIRST_PAUSE
        while True:
            ended = self._training.ended_within(pause)
            if conclusion := self._look(ended=ended):
                return conclusion
            if ended:
                return None
            pause = min(pause * 1.25, LONGEST_PAUSE)

    def _look(self, *, ended: bool) -> Conclusion | None:
        lines = self._log.lines()
        if ended:
            lines.append(self._log.last_line())
        said = (from_line(self._chosen, line) for line in lines)
        told = next((conclusion for conclusion in said if conclusion), None)
        if told or self._before is None:
            return told
        now = saved(self._directory, self._layout)
        return None if now is None else from_checkpoints(self._chosen, self._before, now)


def saved(directory: Path, layout: str) -> Mapping[str, Saved] | None:
    """The checkpoints that lie there now, by path; None when the storage does not answer."""
    try:
        entries = find_candidates(directory, layout).entries
    except CheckpointError:
        return None
    ordered = sorted((entry.step, entry.path) for entry in entries)
    middle = {path for _, path in ordered[LOOKED_INTO:-LOOKED_INTO]}
    return {str(path): Saved(step, 0 if path in middle else _written(path)) for step, path in ordered}


def _written(path: Path) -> int:
    """The newest modification time of its files, nanoseconds; 0 when there is none to be seen."""
    newest = count = 0
    with suppress(OSError):
        if path.is_file():
            return path.stat().st_mtime_ns
    for directory, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                newest = max(newest, (Path(directory) / name).lstat().st_mtime_ns)
            count += 1
        if count > FILES_LOOKED_AT:
            break
    return newest

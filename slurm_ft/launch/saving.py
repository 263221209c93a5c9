"""Watch, beside the training, whether its concurrent checkpoint library gives up saving.

The library says so once, in the job's log, and training goes on without checkpoints: for days, if nobody is told.
"""

from __future__ import annotations

import re

from slurm_ft.launch.continuation import LONGEST_LINE
from slurm_ft.launch.log_reader import LogReader
from slurm_ft.launch.start import Training

PAUSE = 15.0  # seconds between two looks
# slurm_ft/vendor/datastates/_engine/engine.py, `_count_failure`
DISABLED = re.compile(r"CONCURRENT CHECKPOINTS ARE DISABLED after \d{1,9} failures in a row")


class SavingWatch:
    """One watch, of all that the log gets after its creation."""

    def __init__(self, training: Training, pause: float = PAUSE) -> None:
        self._training, self._pause, self._log = training, pause, LogReader()

    def gave_up(self) -> str:
        """Wait until the log says that saving is over and return its words; empty when the training ended before."""
        ended = False
        while not ended:
            ended = self._training.ended_within(self._pause)
            lines = (line[:LONGEST_LINE] for line in (*self._log.lines(), *([self._log.last_line()] if ended else ())))
            match = next(filter(None, map(DISABLED.search, lines)), None)
            if match is not None:
                return match[0]
        return ""

"""What the output goes to: how wide it is, and whether it shows colours."""

from __future__ import annotations

import os
import shutil
from typing import TextIO

from slurm_ft.status.table import PAPER, Screen


def screen_of(stream: TextIO) -> Screen:
    """NO_COLOR (no-color.org) that is not empty and TERM=dumb switch colours off; COLUMNS sets a terminal's width."""
    if not stream.isatty():
        return PAPER
    plain = os.environ.get("NO_COLOR", "") != "" or os.environ.get("TERM", "") in ("", "dumb")
    return Screen(shutil.get_terminal_size().columns, not plain)

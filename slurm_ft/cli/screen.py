"""What the output goes to: how wide it is, and whether it shows colours."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import TextIO

from slurm_ft.status.table import PAPER, Fitted, Screen


def screen_of(stream: TextIO) -> Screen:
    """NO_COLOR (no-color.org) that is not empty and TERM=dumb switch colours off; COLUMNS sets a terminal's width."""
    if not stream.isatty():
        return PAPER
    plain = os.environ.get("NO_COLOR", "") != "" or os.environ.get("TERM", "") in ("", "dumb")
    return Screen(shutil.get_terminal_size().columns, not plain)


def print_text(text: str, stream: TextIO) -> None:
    """Nothing at all for no lines. A terminal that cannot show a letter shows a question mark."""
    if text:
        encoding = stream.encoding or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding), file=stream)


def print_table(fitted: Fitted, stream: TextIO) -> None:
    """The table; below it, on stderr, which columns the terminal had no room for."""
    print_text("\n".join(fitted.lines), stream)
    if fitted.dropped:
        room = max(screen_of(stream).room or 0, 1)
        print_text(textwrap.fill(f"no room for {', '.join(fitted.dropped)}", room), sys.stderr)

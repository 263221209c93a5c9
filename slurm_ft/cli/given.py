"""Values of options that several commands have. What makes no sense is refused, with exit code 2."""

from __future__ import annotations

import argparse
import math
from pathlib import Path


def directory(text: str) -> Path:
    """Of an empty text, as an unset variable leaves it, Path would make the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("is empty: is the variable set?")
    return Path(text)


def ranks(text: str) -> int:
    """How many processes; at least one."""
    if not text.isascii() or not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of ranks: write 1 or more")
    return int(text)


def seconds(text: str) -> float:
    """Of a limit; 0 is one, too."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds: write 0 or more")
    return value

"""Prints what the benchmarks measured: aligned columns, and the facts without which a number means little."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column is flush left, the numbers are flush right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    print(f"\n{title}\n")
    for row in (header, ["-" * width for width in widths], *rows):
        first, *others = row
        numbers = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        print("  ".join([first.ljust(widths[0]), *numbers]))


def verdict(value: float, target: float) -> str:
    """A missed target is printed as it is."""
    return "ok" if value <= target else "MISSED"


def host(slurm: Sequence[int]) -> str:
    """What the numbers were measured on."""
    version = "{}.{:02d}.{}".format(*slurm)
    load = os.getloadavg()[0]
    now = time.strftime("%Y-%m-%d %H:%M")
    return f"{os.cpu_count()} cores (load {load:.1f}), Linux {platform.release()}, Slurm {version}, {now}"

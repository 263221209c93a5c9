"""What earlier jobs of this node met and repeats.py counts. In the run directory: a reboot forgets it, as it should be.

`faults`: one line each: unix time, job id, user id, what, PCI address, place (or `-`).
"""

from __future__ import annotations

import os
from pathlib import Path

from slurm_ft.classify.repeats import PastFault

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

NAME = "faults"
MAX_LINES = 1000
MAX_AGE_S = 7 * 86400.0


def read(directory: Path, now: float, own: int) -> tuple[PastFault, ...]:
    """What other jobs than `own` met lately. Never raises: what cannot be read is none."""
    try:
        lines = (directory / NAME).read_text(encoding="ascii").splitlines()[-MAX_LINES:]
    except (OSError, ValueError):
        return ()
    faults = (_parse(line, now) for line in lines)
    return tuple(fault for fault in faults if fault is not None and fault.raw_id != own)


def _parse(line: str, now: float) -> PastFault | None:
    try:
        at, raw_id, user, what, pci, place = line.split(" ")
        recent = 0 <= now - float(at) <= MAX_AGE_S
        return PastFault(int(raw_id), int(user), what, pci, place.replace("-", "")) if recent else None
    except ValueError:
        return None


def add(directory: Path, now: float, faults: Iterable[PastFault]) -> None:
    """Remember `faults`. Raises OSError."""
    path = directory / NAME
    rows = [f"{now:.0f} {one.raw_id} {one.user} {one.what} {one.pci} {one.place or '-'}\n" for one in faults]
    if not rows:
        return
    with _private(path, os.O_APPEND) as file:
        file.write("".join(rows))
    lines = path.read_text(encoding="ascii").splitlines(keepends=True)
    if len(lines) > 2 * MAX_LINES:
        new = path.with_suffix(".new")
        with _private(new, os.O_TRUNC) as file:
            file.write("".join(lines[-MAX_LINES:]))
        os.replace(new, path)  # noqa: PTH105 - the plain call; other epilogs may append at the same time


def _private(path: Path, how: int) -> TextIO:
    """Root's alone: it says whose jobs met what, which a site may keep from its users (PrivateData)."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600), "w", encoding="ascii")

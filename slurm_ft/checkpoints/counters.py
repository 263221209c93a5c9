"""What one process has counted about checkpoints, left in a small file for the node's metrics.

The site's TaskProlog names the directory in SLURM_FT_COUNTERS; without it nothing is written. Each process has a file
of its own, replaced as a whole. Whoever reads it takes it for what it is: a user's word, and nothing but numbers.
"""

from __future__ import annotations

import json
import math
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .choose import Search

VARIABLE = "SLURM_FT_COUNTERS"
MOST_BYTES = 4096
MOST = 1e18  # of any counter; an exabyte


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the process began. `seconds` and `bytes` are those of the committed ones, from the capture on."""

    committed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    bytes: int = 0
    validated: int = 0
    invalid: int = 0

    def plus(self, other: Counters) -> Counters:
        """The sum."""
        return Counters(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})

    def since(self, before: Counters) -> Counters:
        """What has been added; all of it where anything has fallen: then another process has begun anew."""
        more = {one.name: getattr(self, one.name) - getattr(before, one.name) for one in fields(self)}
        return self if min(more.values()) < 0 else Counters(**more)


class CounterFile:
    """This process's own file."""

    def __init__(self, kind: str, environ: Mapping[str, str] = os.environ) -> None:
        directory = environ.get(VARIABLE, "")
        name = f"{environ.get('SLURM_JOB_ID', '0')}.{kind}.{socket.gethostname().partition('.')[0]}.{os.getpid()}.json"
        self._path = Path(directory, name) if os.path.isabs(directory) else None  # noqa: PTH117 - a text, not a path

    def write(self, counters: Counters) -> None:
        """Replace what it said. Whatever goes wrong costs the numbers and nothing else."""
        if self._path is None:
            return
        beside = self._path.with_suffix(".new")
        with suppress(OSError, ValueError):
            beside.write_text(json.dumps(asdict(counters)), encoding="utf-8")
            beside.replace(self._path)


def count_search(search: Search) -> None:
    """What a search before a start has found whole, and what broken."""
    CounterFile("resume").write(Counters(validated=int(search.point is not None), invalid=len(search.rejected)))


def parse(text: str) -> Counters | None:
    """What such a file says; None if it is anything else."""
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(plain, dict):
        return None
    numbers = {one.name: plain.get(one.name, 0) for one in fields(Counters)}
    return Counters(**numbers) if all(map(_is_counter, numbers.values())) else None


def _is_counter(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= MOST and math.isfinite(value)  # type: ignore[operator,arg-type]

"""placeholder"""

from __future__ import annotations

BANNER = "==== slurm_ft job "


def of_this_attempt(lines: "list[str] | tuple[str, ...]") -> tuple[str, ...]:
    """The lines from the last banner on; all of them if there is none."""
    last = max((place for place, line in enumerate(lines) if line.startswith(BANNER)), default=0)
    return tuple(lines[last:])

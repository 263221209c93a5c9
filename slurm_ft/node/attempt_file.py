"""What the node Prolog noted about an attempt: `<run dir>/attempts/<node>.<job id>`, written by prolog/node_prolog.

Three lines: the marker it left in the kernel log (empty if it could not), the boot id, and the uptime in seconds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RUN_DIR_VARIABLE = "SLURM_FT_RUN_DIR"
DEFAULT_RUN_DIR = Path("/run/slurm_ft")


@dataclass(frozen=True, slots=True)
class AttemptStart:
    """Where the attempt begins; all None when no Prolog ran."""

    marker: str | None = None
    boot_id: str | None = None
    uptime: float | None = None


def run_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The node's run-time directory."""
    return Path(environ.get(RUN_DIR_VARIABLE) or DEFAULT_RUN_DIR)


def read(directory: Path, node: str, raw_id: int) -> AttemptStart:
    """What the Prolog wrote for this job on this node. Never raises: an unreadable note is none."""
    try:
        lines = (directory / "attempts" / f"{node}.{raw_id}").read_text(encoding="utf-8").splitlines()
        marker, boot_id, uptime = lines[:3]
        return AttemptStart(marker or None, boot_id or None, float(uptime))
    except (OSError, ValueError):
        return AttemptStart()

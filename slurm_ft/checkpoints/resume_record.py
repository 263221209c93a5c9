"""The record of the last choice, for whoever watches: which step and path, and the one before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .state_directory import read_note, state_directory, write_note

if TYPE_CHECKING:
    from pathlib import Path

    from .choose import Search

SCHEMA = 1


def record_path(output_dir: Path) -> Path:
    """Where an output directory's record lies."""
    return state_directory(output_dir) / "resume.json"


def read_record(output_dir: Path) -> dict[str, Any] | None:
    """Return the last record; None if there is none."""
    content = read_note(record_path(output_dir))
    return content if isinstance(content, dict) and content.get("schema") == SCHEMA else None


def write_record(search: Search, job_id: str, attempt: str) -> bool:
    """Record a choice; False where that cannot be written. The choice stands all the same."""
    before = read_record(search.directory) or {}
    point = search.point
    return write_note(
        record_path(search.directory),
        {
            "schema": SCHEMA,
            "step": point.step if point else None,
            "path": str(point.path) if point else None,
            "layout": search.layout.name,
            "verdict": point.finding.verdict.value if point else None,
            "level": point.level.word if point else None,
            "rejected": [
                {
                    "path": str(entry.candidate.path),
                    "verdict": entry.finding.verdict.value,
                    "reason": entry.finding.reason,
                }
                for entry in search.rejected
            ],
            "job": job_id,
            "attempt": attempt,
            "time": int(time.time()),
            "previous_step": before.get("step"),
            "previous_job": before.get("job"),
        },
    )

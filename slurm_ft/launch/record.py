"""What this attempt became, in the record of its choice (`resume.json`): for the user, and for the next attempt."""

from __future__ import annotations

from pathlib import Path

from slurm_ft.checkpoints.resume_record import read_record, record_path
from slurm_ft.checkpoints.state_directory import write_note
from slurm_ft.failover.resume_tag import ResumeMark
from slurm_ft.launch.continuation import Conclusion


def last_mark(output_dir: Path, job: str) -> ResumeMark | None:
    """What the last attempt of this job recorded; None if the record is another job's, or none."""
    found = read_record(output_dir) or {}
    step, attempt, since = found.get("step"), found.get("attempt"), found.get("since")
    number = int(attempt) if isinstance(attempt, str) and attempt.isdecimal() else attempt
    if not job or found.get("job") != job or not isinstance(number, int):
        return None
    first = since if isinstance(since, int) and since <= number else number
    return ResumeMark(step if isinstance(step, int) else None, number, first)


def note(output_dir: Path, mark: ResumeMark, conclusion: Conclusion | None) -> None:
    """Add to the record whether training went on. Where it cannot be written, the log has said so already."""
    found = read_record(output_dir)
    if found is None:
        return
    went_on = None if conclusion is None else conclusion.went_on
    seen = conclusion.why if conclusion else ""
    write_note(
        record_path(output_dir), {**found, "since": mark.since, "alert": mark.alert, "went_on": went_on, "seen": seen}
    )

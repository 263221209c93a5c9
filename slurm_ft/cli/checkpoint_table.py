"""Checkpoints as a table, as a table of states, and as JSON. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from slurm_ft.checkpoints import State, printable, warnings
from slurm_ft.checkpoints.layout import REQUIRED_STATES
from slurm_ft.checkpoints.printable import size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurm_ft.checkpoints.survey import Survey, Surveyed

NOTHING = "-"
SCHEMA = 1


def _time(row: Surveyed) -> str:
    """When its newest file was written, in local time."""
    files = row.judgement.files
    if files is None or not files.entries:
        return ""
    return datetime.fromtimestamp(files.newest_mtime).astimezone().isoformat(sep=" ", timespec="seconds")[:19]


def _name(row: Surveyed, directory: Any) -> str:
    path = row.candidate.path
    return str(path.relative_to(directory)) if path.is_relative_to(directory) and path != directory else path.name


def _reason(row: Surveyed) -> str:
    finding = row.judgement.finding
    return "; ".join(part for part in (finding.reason, finding.note) if part)


COLUMNS: dict[str, Callable[[Surveyed], str]] = {
    "STEP": lambda row: str(row.candidate.step),
    "TIME": _time,
    "SIZE": lambda row: size(row.judgement.files.total_bytes) if row.judgement.files else "",
    "FRAMEWORK": lambda row: row.candidate.layout.name,
    "RANKS": lambda row: str(row.judgement.world_size or ""),
    "LEVEL": lambda row: row.judgement.level.word,
    "VERDICT": lambda row: row.judgement.finding.verdict.value,
    "REASON": _reason,
}


def table(found: Survey) -> str:
    """One row per checkpoint. Nothing is cut off; an empty cell is a dash so that columns can be counted."""
    rows = [[_name(row, found.directory), *(cell(row) for cell in COLUMNS.values())] for row in found.rows]
    return aligned([["CHECKPOINT", *COLUMNS], *rows])


def state_table(found: Survey) -> str:
    """Which parts of a training's state each checkpoint carries, and what is missing."""
    marks = [
        [_name(row, found.directory), *("yes" if state in row.judgement.states else "no" for state in State)]
        for row in found.rows
        if row.judgement.states
    ]
    if not marks:
        return "The state that they carry is not known at this level."
    head = ["STATE", *(state.value.replace(" ", "-") for state in State)]
    needed = ["needed", *("required" if state in REQUIRED_STATES else "recommended" for state in State)]
    warned = [
        f"WARNING: {printable(_name(row, found.directory))}: {warning}"
        for row in found.rows
        if row.judgement.states
        for warning in warnings(row.judgement.states)
    ]
    return "\n".join([aligned([head, needed, *marks]), *warned])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns two blanks apart, without trailing blanks."""
    cells = [[printable(cell) or NOTHING for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "\n".join(lines)


def as_json(found: Survey) -> dict[str, Any]:
    """The same for programs."""
    return {
        "schema": SCHEMA,
        "directory": str(found.directory),
        "checkpoints": [_entry(row) for row in found.rows],
    }


def _entry(row: Surveyed) -> dict[str, Any]:
    judgement = row.judgement
    return {
        "path": str(row.candidate.path),
        "step": row.candidate.step,
        "time": judgement.files.newest_mtime if judgement.files else None,
        "bytes": judgement.files.total_bytes if judgement.files else None,
        "framework": row.candidate.layout.name,
        "world_size": judgement.world_size,
        "level": judgement.level.word,
        "verdict": judgement.finding.verdict.value,
        "reason": judgement.finding.reason,
        "note": judgement.finding.note,
        "states": {state.value: where for state, where in judgement.states.items()},
        "warnings": warnings(judgement.states) if judgement.states else [],
    }

"""What the validator beside the training found in a checkpoint: VALIDATION.json, written into it after its commit.

It belongs to one manifest: where COMMITTED names another one, the checkpoint was saved again and the record means
nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .finding import Finding, Verdict, corrupt
from .manifest import COMMITTED

if TYPE_CHECKING:
    from pathlib import Path

VALIDATION = "VALIDATION.json"
SCHEMA = 1
MOST_BYTES = 64 << 10
FAILED = (Verdict.CORRUPT, Verdict.INCOMPLETE, Verdict.INCONSISTENT)


@dataclass(frozen=True, slots=True)
class Validation:
    """The record. A checkpoint is neither validated nor failed if it is sound but no point to resume from."""

    validated: bool
    failed: bool
    reason: str = ""


def read_validation(directory: Path) -> Validation | None:
    """Return the record of a committed checkpoint; None without one that belongs to it."""
    value, committed = _json(directory / VALIDATION), _json(directory / COMMITTED)
    if not isinstance(value, dict) or not isinstance(committed, dict) or value.get("schema") != SCHEMA:
        return None
    if value.get("manifest_sha256") != committed.get("manifest_sha256"):
        return None
    return Validation(value.get("validated") is True, value.get("failed") is True, str(value.get("reason", "")))


def encode_validation(finding: Finding, manifest_sha256: str, size: int, seconds: float) -> bytes:
    """Return the content of VALIDATION.json. `size` in bytes, `seconds` that the reading took."""
    value = {
        "schema": SCHEMA,
        "validated": finding.resumable,
        "failed": finding.verdict in FAILED,
        "verdict": finding.verdict.value,
        "reason": finding.reason,
        "note": finding.note,
        "manifest_sha256": manifest_sha256,
        "bytes": size,
        "seconds": round(seconds, 3),
    }
    return (json.dumps(value, sort_keys=True) + "\n").encode()


def failed_before(directory: Path) -> Finding | None:
    """Return what rules a checkpoint out because the validator found it broken; None otherwise."""
    validation = read_validation(directory)
    if validation is None or not validation.failed:
        return None
    return corrupt(f"it failed validation: {validation.reason} (remove {VALIDATION} to have it judged anew)")


def _json(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None

"""Verdicts of deep checks, so that the same bytes are not read again at the next attempt.

A verdict holds as long as no file's path, size, modification time or inode changed. It is kept outside the
checkpoint; where it cannot be written, the next attempt reads again.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from .finding import Finding, Verdict
from .state_directory import read_note, state_directory, write_note

if TYPE_CHECKING:
    from pathlib import Path

    from .files import Files

SCHEMA = 1
MOST_ENTRIES = 500


class VerdictCache:
    """The cache of one output directory."""

    def __init__(self, output_dir: Path) -> None:
        self.path = state_directory(output_dir) / "verdicts.json"

    def get(self, files: Files) -> Finding | None:
        """Return the deep verdict on these very files; None if it is not known."""
        entry = self._entries().get(fingerprint(files))
        try:
            return Finding(Verdict(entry["verdict"]), str(entry["reason"]), str(entry["note"])) if entry else None
        except (KeyError, ValueError, TypeError):
            return None

    def put(self, files: Files, finding: Finding) -> None:
        """Remember a verdict; what it cannot write is forgotten."""
        entries = self._entries()
        entries.pop(fingerprint(files), None)
        kept = dict(list(entries.items())[-MOST_ENTRIES + 1 :])
        kept[fingerprint(files)] = {"verdict": finding.verdict.value, "reason": finding.reason, "note": finding.note}
        write_note(self.path, {"schema": SCHEMA, "verdicts": kept})

    def _entries(self) -> dict[str, dict[str, str]]:
        content = read_note(self.path)
        found = content.get("verdicts") if isinstance(content, dict) and content.get("schema") == SCHEMA else None
        return found if isinstance(found, dict) else {}


def fingerprint(files: Files) -> str:
    """Return what stands for the checkpoint's files: their paths, sizes, modification times and inodes."""
    digest = hashlib.sha256(str(files.path).encode("utf-8", "surrogateescape"))
    for name in files.names:
        entry = files.entries[name]
        line = f"\0{name}\0{entry.size}\0{entry.mtime_ns}\0{entry.inode}"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()

"""Show what stands in a log, byte for byte; on a terminal, another user's log without what a terminal obeys."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

from slurm_ft.as_user import open_regular
from slurm_ft.checkpoints import printable
from slurm_ft.logs.survey import Chapter

BLOCK = 1 << 20  # bytes
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")


class Screen:
    """Standard output. `foreign`: the log is another user's, who might command the reader's terminal with it."""

    def __init__(self, *, foreign: bool = False, several: bool = False) -> None:
        self._out = sys.stdout.buffer
        self._guarded = foreign and sys.stdout.isatty()
        self._last, self.several = "", several
        self._at_line_start = True

    def write(self, path: str, text: bytes) -> None:
        """Text of a file; where there are several, the file is named whenever it is another one."""
        if self.several and path != self._last and self._last:
            self.heading(path)
        self._last = path
        self._put(text)

    def chapters(self, chapters: Sequence[Chapter]) -> None:
        """Attempts, each with a heading unless its own text begins with one, or it is all there is. Raises OSError."""
        for chapter in chapters:
            if len(chapters) > 1 and (self.several or not chapter.part.marked):
                name = f" · {chapter.path}" if self.several else ""
                self.heading(f"attempt {chapter.part.attempt} (restart {chapter.part.restart}){name}")
            self._last = chapter.path
            self._copy(chapter)

    def heading(self, text: str) -> None:
        """A line of our own, as tail(1) has them."""
        self._put((b"" if self._at_line_start else b"\n") + f"==> {text} <==\n".encode("utf-8", "surrogateescape"))

    def _copy(self, chapter: Chapter) -> None:
        descriptor = open_regular(chapter.path, os.O_RDONLY)
        try:
            place, end = chapter.part.start, chapter.part.end
            while place < end and (text := os.pread(descriptor, min(BLOCK, end - place), place)):
                self._put(text)
                place += len(text)
        finally:
            os.close(descriptor)

    def _put(self, text: bytes) -> None:
        if not text:
            return
        self._at_line_start = text.endswith(b"\n")
        self._out.write(_CONTROLS.sub(b"?", text) if self._guarded else text)
        self._out.flush()


def listing(chapters: Sequence[Chapter]) -> str:
    """One line for each attempt: where it stands, how much it is, and of what it ended if the log says so."""
    rows = [("ATTEMPT", "RESTART", "BYTES", "FILE", "ENDED")]
    for chapter in chapters:
        part = chapter.part
        size = str(part.end - part.start)
        rows.append((part.attempt, str(part.restart), size, printable(chapter.path), part.ended or "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

"""What is added to a file while one looks: also when it is truncated, and when another file takes its place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from slurm_ft.as_user import open_regular

AT_ONCE = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """New bytes, and what happened to the file, if that has to be said."""

    text: bytes = b""
    event: str = ""


class Tail:
    """The end of one file, which need not be there yet. A poll: inotify tells nothing of other hosts' writes on NFS."""

    def __init__(self, path: str, offset: int = 0) -> None:
        self.path = path
        self._descriptor, self._offset = -1, offset

    def read(self) -> Piece:
        """At most AT_ONCE new bytes; nothing while there is none. Raises OSError for a file that must not be read."""
        if self._descriptor < 0 and not self._opened():
            return Piece()
        if text := os.pread(self._descriptor, AT_ONCE, self._offset):
            self._offset += len(text)
            return Piece(text)
        return self._changed()

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _opened(self) -> bool:
        try:
            self._descriptor = open_regular(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        return True

    def _changed(self) -> Piece:
        """All is read: look whether the file became shorter, or the path names another one."""
        held = os.fstat(self._descriptor)
        if held.st_size < self._offset:
            self._offset = 0
            return Piece(event="was truncated: without --open-mode=append each attempt does that")
        try:
            there = Path(self.path).stat()
        except FileNotFoundError:
            return Piece()
        if (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino):
            return Piece()
        self.close()
        self._offset = 0
        return Piece(event="was replaced by another file")

"""New lines of the job's own log, read beside the training that writes it."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

OWN_STDOUT = Path("/proc/self/fd/1")
AT_ONCE = 4 * 1024 * 1024  # bytes of one look; a log that grows faster is read in part
LONGEST_TAIL = 4096  # bytes of an unfinished line that are kept
LINE_END = re.compile(rb"[\r\n]")  # a progress bar ends its lines with a carriage return


class LogReader:
    """Reads what is appended after its creation. A log that is no regular file has no lines."""

    def __init__(self, path: Path = OWN_STDOUT) -> None:
        self._tail = b""
        try:
            self._path: Path | None = path.resolve(strict=True)
            status = self._path.stat()
            if not stat.S_ISREG(status.st_mode):
                self._path = None
            self._offset = status.st_size
        except OSError:
            self._path, self._offset = None, 0

    def lines(self) -> list[str]:
        """The lines since the last call; none when the log cannot be read."""
        *whole, tail = LINE_END.split(self._tail + self._new_bytes())
        self._tail = tail[-LONGEST_TAIL:]
        return [line.decode("utf-8", "replace") for line in whole if line]

    def last_line(self) -> str:
        """What was not ended by a line break, once nothing more will come."""
        return self._tail.decode("utf-8", "replace")

    def _new_bytes(self) -> bytes:
        if self._path is None:
            return b""
        try:
            with self._path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                start = max(self._offset, size - AT_ONCE) if size >= self._offset else 0
                file.seek(start)
                new = file.read(AT_ONCE)
        except OSError:
            return b""
        self._offset = start + len(new)
        return new

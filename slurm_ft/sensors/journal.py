"""The journal's copy of the kernel log, for lines that the ring buffer has lost: `journalctl -k -o json`.

Its records come out as those of /dev/kmsg, so that the same reader judges them. journald copies what was written to
/dev/kmsg too, with its facility: our marker is there as well.
"""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

from slurm_ft.sensors.journal_lines import MAX_RECORD, journal_record

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

UPTIME = Path("/proc/uptime")
SLACK_S = 600.0  # the print clock and the wall clock drift apart; too early a start costs time only
CHUNK = 1 << 16
MAX_BYTES = 1 << 28


def journal_records(command: Path, start: float, deadline: float) -> Iterator[bytes]:
    """The kernel's records of this boot from `start` (uptime) on. Ends at `deadline` (monotonic) whatever happens."""
    # Here, and in journal_lines: only a log that was overwritten needs them.
    from subprocess import DEVNULL, PIPE, Popen  # noqa: PLC0415

    ago = max(_uptime() - start, 0.0) + SLACK_S
    arguments = [str(command), "-k", "-b", "-o", "json", "--no-pager", "--quiet", f"--since=-{ago:.0f}s"]
    with Popen(arguments, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env={"LC_ALL": "C"}) as process:
        try:
            for line in _lines(process.stdout, deadline):
                record = raw_record(line.decode("utf-8", "replace"))
                if record is not None:
                    yield record
        finally:
            process.kill()


def raw_record(line: str) -> bytes | None:
    """A line of JSON as a record `prio,seq,usec,flags;message`; None if it is none of the kernel's."""
    found = journal_record(line)
    if found is None or found.since_boot is None:
        return None
    message = found.message.replace("\n", "\\x0a")
    return f"{found.priority},0,{found.since_boot * 1e6:.0f},-;{message}\n".encode("utf-8", "replace")


def _lines(pipe: IO[bytes] | None, deadline: float) -> Iterator[bytes]:
    """Whole lines of a pipe, until its end, the deadline or too much of it."""
    if pipe is None:
        return
    descriptor, rest, total = pipe.fileno(), b"", 0
    while total < MAX_BYTES and (left := deadline - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            return
        chunk = os.read(descriptor, CHUNK)
        if not chunk:
            return
        total += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        rest = rest[: 4 * MAX_RECORD + 1]  # a longer one is none to journal_lines.py, and would fill the memory
        yield from lines


def _uptime() -> float:
    return float(UPTIME.read_text(encoding="ascii").split()[0])

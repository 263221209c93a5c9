"""Follow a job's output across its attempts, until the job has ended for good."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slurm_ft.checkpoints import printable
from slurm_ft.errors import SlurmFtError
from slurm_ft.logs.files import LogFile
from slurm_ft.logs.tail import Tail
from slurm_ft.slurm.protocol import JobRecord

POLL = 0.25  # seconds between two looks at the files
JOB_POLL = 3.0  # seconds between two questions to Slurm
# A job that fails over goes from COMPLETING to PENDING: it shows none of these in between.
FINAL = frozenset(
    ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "PREEMPTED", "BOOT_FAIL")
)


@dataclass(frozen=True, slots=True)
class Reader:
    """With what a job is followed. `look` asks Slurm, `write` shows what was read from a file, `say` what happened."""

    look: Callable[[], JobRecord | None]
    files: Callable[[JobRecord], Sequence[LogFile]]
    write: Callable[[str, bytes], None]
    say: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep


@dataclass(slots=True)
class _Following:
    reader: Reader
    tails: dict[str, Tail] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def watch(self, job: JobRecord) -> None:
        """Follow the files that the job has by now."""
        for file in self.reader.files(job):
            if file.path not in self.tails and file.path not in self.refused:
                self.tails[file.path] = Tail(file.path)

    def drain(self) -> None:
        """Show all that is there."""
        for path, tail in list(self.tails.items()):
            while self._piece(path, tail):
                pass

    def _piece(self, path: str, tail: Tail) -> bool:
        try:
            piece = tail.read()
        except OSError as error:
            self.reader.say(f"{printable(path)} is not read any more: {error.strerror}")
            self.refused.add(path)
            del self.tails[path]
            return False
        if piece.event:
            self.reader.say(f"{printable(path)} {piece.event}")
        if piece.text:
            self.reader.write(path, piece.text)
        return bool(piece.text or piece.event)


def follow(reader: Reader, job: JobRecord, tails: dict[str, Tail]) -> JobRecord | None:
    """Show what comes until the job has ended for good; `tails` are the files that are followed already, by path.

    Returns the job as it ended, None if Slurm has forgotten it.
    """
    following = _Following(reader, tails)
    known: JobRecord | None = job
    while known is not None and known.state not in FINAL:
        following.watch(known)
        for _ in range(round(JOB_POLL / POLL)):
            following.drain()
            reader.sleep(POLL)
        known = _looked(reader, known)
    if known is not None:
        following.watch(known)
    reader.sleep(POLL)  # what the last process wrote may take a moment to be seen from another host
    following.drain()
    return known


def _looked(reader: Reader, before: JobRecord) -> JobRecord | None:
    """The job now; as it was, while Slurm does not answer."""
    try:
        job = reader.look()
    except SlurmFtError as error:
        reader.say(f"Slurm does not answer, the log is followed all the same: {error}")
        return before
    if job is not None and job.restarts != before.restarts:
        where = f" on {job.nodes}" if job.nodes else ""
        reader.say(f"job {job.address}: restart {job.restarts}, {job.state}{where}")
    return job

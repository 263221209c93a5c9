"""What a check can find out about a checkpoint, and the error for storage that does not answer."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from enum import Enum

from slurm_ft.errors import SlurmFtError


class Condition(str, Enum):
    """How sound a checkpoint is."""

    VALID = "valid"  # complete, and every checksum holds
    UNVERIFIED = "unverified"  # complete as far as one can see, but its format carries no checksum
    INCOMPLETE = "incomplete"  # a save was interrupted
    CORRUPT = "corrupt"  # content is damaged, or is no checkpoint at all
    REFUSED = "refused"  # not a plain file of the output directory


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. `reason` is one plain sentence without the file's name; empty for a valid one."""

    condition: Condition
    reason: str = ""

    @property
    def resumable(self) -> bool:
        """True if training may start from it."""
        return self.condition in (Condition.VALID, Condition.UNVERIFIED)


VALID = Finding(Condition.VALID)


class UnreadableCheckpointError(SlurmFtError):
    """The storage did not answer. That says nothing about the checkpoint.

    So it never sends a job to an older checkpoint or to step 0: the attempt fails instead, and somebody looks.
    """

    exit_code = 74  # EX_IOERR of sysexits.h

    def __init__(self, path: str | os.PathLike[str], error: OSError) -> None:
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        shown = printable(os.fspath(path))
        super().__init__(
            f"cannot read {shown}: {error.strerror or error} ({name})",
            "Nothing was decided and nothing was changed: make it readable on this node, then requeue the job",
        )
        self.error = error


def printable(text: str) -> str:
    """Return the text for a log line: one with line breaks or control characters is shown escaped, in quotes."""
    return text if text.isprintable() else ascii(text)

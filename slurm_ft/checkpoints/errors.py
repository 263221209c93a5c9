"""The errors of this package. It carries its own base, because a training's Python may have only this package."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from .printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence


class CheckpointError(Exception):
    """Base of what this package raises. `what` names the thing that failed; `fix` is what the reader can do."""

    exit_code = 1

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}. {self.fix}" if self.fix else self.what


class UnreadableCheckpointError(CheckpointError):
    """The storage did not answer. That says nothing about the checkpoint.

    So it never sends a job to an older checkpoint or to step 0: the attempt fails instead, and somebody looks.
    """

    exit_code = 74  # EX_IOERR of sysexits.h

    def __init__(self, path: str | os.PathLike[str], error: OSError) -> None:
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        super().__init__(
            f"cannot read {printable(os.fspath(path))}: {error.strerror or error} ({name})",
            "Nothing was decided and nothing was changed: make it readable on this node, then requeue the job",
        )
        self.error = error


class NoValidCheckpointError(CheckpointError):
    """There are checkpoints, none is valid, and the policy is not to start from scratch then."""

    exit_code = 65  # EX_DATAERR of sysexits.h

    def __init__(self, directory: str | os.PathLike[str], rejected: Sequence[str]) -> None:
        super().__init__(
            f"no valid checkpoint in {printable(os.fspath(directory))}: {'; '.join(rejected)}",
            "Training is not started from scratch, as asked (--on-no-valid fail)",
        )


class UnknownFrameworkError(CheckpointError):
    """A framework's name that no layout has."""

    exit_code = 64  # EX_USAGE of sysexits.h

    def __init__(self, framework: str, known: Sequence[str]) -> None:
        super().__init__(f"unknown framework {framework!r}", f"Use one of: auto, {', '.join(known)}")

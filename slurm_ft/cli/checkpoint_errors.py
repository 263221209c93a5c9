"""Where the checkpoint package's errors become the command line's: that package carries a base class of its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from slurm_ft.checkpoints import CheckpointError
from slurm_ft.errors import SlurmFtError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def translated() -> Iterator[None]:
    """Raise SlurmFtError, with the same words and exit code, for every CheckpointError inside."""
    try:
        yield
    except CheckpointError as error:
        translation = SlurmFtError(error.what, error.fix)
        translation.exit_code = error.exit_code
        raise translation from error

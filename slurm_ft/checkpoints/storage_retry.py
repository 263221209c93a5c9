"""A network file system may answer the second time."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, TypeVar

from .errors import UnreadableCheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

RETRY_PAUSES = (1.0, 3.0)  # seconds before each new try

# Errors that a new try cannot cure.
LASTING = (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG)


def retried(read: Callable[[], T], pauses: Sequence[float] = RETRY_PAUSES) -> T:
    """Call `read`, again after each pause if the storage did not answer. Raises UnreadableCheckpointError at last."""
    for pause in pauses:
        try:
            return read()
        except UnreadableCheckpointError as unreadable:
            if unreadable.error.errno in LASTING:
                raise
        time.sleep(pause)
    return read()

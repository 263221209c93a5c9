"""Files below state_dir, opened without following a link and read without filling the memory.

On the controller the directory is SlurmUser's, and root may work in it too (`slurm-ft reconcile`): whatever lies there
under the name of one of our files must not lead root to another file.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MODE = 0o640  # they name users' jobs
# O_NONBLOCK: a FIFO in the place of a file must not make anybody wait.
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_plain(path: Path, flags: int) -> int:
    """A descriptor of the regular file `path`, which has no other name. Raises OSError."""
    descriptor = os.open(path, flags | _PLAIN, MODE)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no plain file of one name", str(path))
    return descriptor


def read_newest(path: Path, most: int) -> bytes:
    """The last `most` bytes of a file; nothing if there is none. Raises OSError."""
    try:
        descriptor = open_plain(path, os.O_RDONLY)
    except FileNotFoundError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        file.seek(max(os.fstat(descriptor).st_size - most, 0))
        return file.read(most)


def give_to_owner_of(directory: Path, descriptor: int) -> None:
    """Hand a file or directory that root has just made to whom `directory` belongs: SlurmUser writes there later."""
    owner, status = directory.stat(), os.fstat(descriptor)
    just_made = stat.S_ISDIR(status.st_mode) or (status.st_nlink == 1 and status.st_size == 0)
    if os.geteuid() == 0 and status.st_uid == 0 and owner.st_uid != 0 and just_made:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)

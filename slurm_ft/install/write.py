"""Write a file of root's that is there whole or not at all."""

from __future__ import annotations

import os
import pwd
import secrets
from contextlib import suppress
from pathlib import Path

from slurm_ft.errors import SlurmFtError


def write_whole(path: Path, text: str, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Replace `path` at once; `owner` is user and group id, None: the writer's. Raises OSError."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            if owner is not None:
                os.fchown(descriptor, *owner)
            os.fchmod(descriptor, mode)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise


def ids(account: str) -> tuple[int, int]:
    """User and group id of an account. Raises SlurmFtError."""
    try:
        entry = pwd.getpwnam(account)
    except KeyError:
        raise SlurmFtError(f"there is no account {account!r} on this machine", "Name it with --slurm-user") from None
    return entry.pw_uid, entry.pw_gid

"""The accounts that files are given to."""

from __future__ import annotations

import pwd

from slurm_ft.errors import SlurmFtError


def ids(account: str) -> tuple[int, int]:
    """User and group id of an account. Raises SlurmFtError."""
    try:
        entry = pwd.getpwnam(account)
    except KeyError:
        raise SlurmFtError(f"there is no account {account!r} on this machine", "Name it with --slurm-user") from None
    return entry.pw_uid, entry.pw_gid

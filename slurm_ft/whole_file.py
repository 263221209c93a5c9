"""Write a file that is there whole or not at all, whoever reads it meanwhile."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


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

"""The spool: one small file per alert below state_dir, written by hooks, emptied by the sender.

An alert is written beside its final name and renamed, so that a reader never sees half of one, and nobody waits for a
lock. Its name is made from its key: a flood of the same alert stays one file. Readable by owner and group only.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from slurm_ft.alert import Alert, from_json, to_json
from slurm_ft.state_file import give_to_owner_of

DIRECTORY = "alerts"
NEW = "new"
MOST = 1000  # alerts that wait; further ones are refused
SIZE_LIMIT = 16384  # bytes of one file; an alert has at most 14 texts of 500 characters, most of them short
_ENDING = ".json"


class SpoolFullError(OSError):
    """Too many alerts wait: nobody delivers them."""


def put(state_dir: Path, alert: Alert) -> None:
    """Spool one alert; a waiting one with the same key is replaced. Raises OSError; touches no network."""
    directory = made(state_dir)
    path = directory / (hashlib.sha256(alert.key.encode("utf-8", "backslashreplace")).hexdigest()[:32] + _ENDING)
    if not path.exists() and _waiting(directory) >= MOST:
        raise SpoolFullError(f"{directory}: {MOST} alerts wait already; does `slurm-ft alert send` run?")
    text = json.dumps(to_json(alert), ensure_ascii=True).encode("ascii")
    write_whole(path, text, state_dir)


def write_whole(path: Path, text: bytes, state_dir: Path) -> None:
    """Write a file that is there whole or not at all, and belongs to the owner of `state_dir`. Raises OSError."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o640)
    try:
        with os.fdopen(descriptor, "wb") as file:
            give_to_owner_of(state_dir, file.fileno())
            file.write(text)
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise


def made(state_dir: Path) -> Path:
    """The directory of the waiting alerts, made where it is missing. Raises OSError."""
    directory = state_dir / DIRECTORY / NEW
    if not directory.is_dir():
        for path in (state_dir / DIRECTORY, directory):
            path.mkdir(mode=0o750, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                give_to_owner_of(state_dir, descriptor)
            finally:
                os.close(descriptor)
    return directory


def _waiting(directory: Path) -> int:
    with os.scandir(directory) as found:
        return sum(1 for _ in found)


def paths(state_dir: Path) -> list[Path]:
    """The files of the waiting alerts. Raises OSError."""
    try:
        return sorted((state_dir / DIRECTORY / NEW).glob(f"[!.]*{_ENDING}"))
    except FileNotFoundError:
        return []


def read(files: list[Path]) -> Iterator[Alert]:
    """The alerts of these files; what is no alert is passed over."""
    for path in files:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                alert = from_json(json.loads(file.read(SIZE_LIMIT)))
        except (OSError, ValueError, RecursionError):
            continue
        if alert:
            yield alert

"""Which checkpoints go once a newer one is committed, and what earlier attempts left behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from .._checkpoints.validation import read_validation
from .durable import sync_directory
from .manifest import run_of
from .paths import MARKER, OWNER, TEMPORARY_PREFIX, TRASH_PREFIX, committed
from .run_identity import is_gone, read_owner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .run_identity import Owner
    from .settings import Settings


def superseded(steps: Iterable[int], newest: int, settings: Settings, kept: Iterable[int] = ()) -> list[int]:
    """Return the steps to delete, given the steps of this run and the newest one just committed.

    A step above the newest is none of ours to judge: training went back behind it.
    """
    if not settings.keep_last:
        return []
    older = sorted(step for step in steps if step < newest)
    recent = older[len(older) - settings.keep_last + 1 :] if settings.keep_last > 1 else []
    every = settings.keep_every
    keep = {*recent, *kept, *(step for step in older if every and step % every == 0)}
    return [step for step in older if step not in keep]


def prune(root: Path, newest: int, owner: Owner, settings: Settings, protected: Iterable[str]) -> list[Path]:
    """Delete what `superseded` names among this run's checkpoints; return them. A failure only leaves more behind.

    One that the validator found broken counts for nothing and goes; the newest that it found sound stays.
    """
    mine = {step: path for step, path in committed(root) if _run(path) == owner.run}
    names = set(protected)
    records = {step: read_validation(path) for step, path in mine.items()}
    broken = {step for step, record in records.items() if record is not None and record.failed}
    kept = [step for step, path in mine.items() if path.name in names]
    kept += sorted(step for step, record in records.items() if record is not None and record.validated)[-1:]
    sound = [step for step in mine if step not in broken]
    doomed = [mine[step] for step in [*superseded(sound, newest, settings, kept), *_older(broken, newest, kept)]]
    for path in doomed:
        _remove(path, root / f"{TRASH_PREFIX}{path.name}-{owner.attempt}")
    return doomed


def _older(steps: Iterable[int], newest: int, kept: Iterable[int]) -> list[int]:
    return [step for step in sorted(steps) if step < newest and step not in set(kept)]


def remove_leftovers(root: Path, owner: Owner) -> list[Path]:
    """Delete temporary directories whose owner is certainly gone, and trash. Returns what stays, unsure."""
    unsure = []
    for name in _names(root):
        path = root / name
        if name.startswith(TRASH_PREFIX):
            shutil.rmtree(path, ignore_errors=True)
        elif name.startswith(TEMPORARY_PREFIX):
            left_by = read_owner(path / OWNER)
            if left_by is not None and is_gone(left_by, owner):
                _remove(path, root / f"{TRASH_PREFIX}{name.lstrip('.')}")
            else:
                unsure.append(path)
    return unsure


def _remove(path: Path, trash: Path) -> None:
    """Rename first: a directory half deleted must not look like a checkpoint."""
    try:
        path.rename(trash)
        sync_directory(path.parent)
    except OSError:
        return
    shutil.rmtree(trash, ignore_errors=True)


def _names(root: Path) -> list[str]:
    try:
        return os.listdir(root)  # noqa: PTH208 - names are all we need
    except OSError:
        return []


def _run(path: Path) -> str:
    try:
        return run_of((path / MARKER).read_bytes())
    except OSError:
        return ""

"""Look how a change stands, and carry it out. Whatever an admin made or changed stays."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from slurm_ft.install import slurm_conf
from slurm_ft.install.accounts import ids
from slurm_ft.install.change import Change, Directory, File, Lines, Link, Made, Place, State
from slurm_ft.install.manifest import Manifest
from slurm_ft.whole_file import write_whole

BACKUP = ".before-slurm_ft"


def look(change: Change, place: Place, manifest: Manifest) -> tuple[State, str]:
    """How the change stands, and why it is left if it is somebody else's. Raises OSError."""
    path = place.at(change.path)
    if isinstance(change, Lines):
        return _look_at_lines(change, path, manifest)
    if not os.path.lexists(path):
        return State.MISSING, ""
    if isinstance(change, Directory):
        return _look_at_directory(change, path, place, ours=manifest.mark("directory", change.path) is not None)
    if isinstance(change, Link):
        return _look_at_link(change, path, manifest)
    return _look_at_file(change, path, manifest)


def _look_at_directory(change: Directory, path: Path, place: Place, *, ours: bool) -> tuple[State, str]:
    """One that we made for root becomes SlurmUser's when the machine becomes a controller too."""
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        return State.FOREIGN, "it is no directory: move it away"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return State.FOREIGN, f"its group or everybody can write to it: chmod go-w {change.path}"
    if change.history and change.owner != "root" and not place.staged and status.st_uid != ids(change.owner)[0]:
        if ours:
            return State.OLDER, ""
        return State.FOREIGN, f"it belongs to user id {status.st_uid}: chown -R {change.owner}: {change.path}"
    return State.DONE, ""


def _look_at_link(change: Link, path: Path, manifest: Manifest) -> tuple[State, str]:
    target = str(path.readlink()) if path.is_symlink() else None
    if target == change.target:
        return State.DONE, ""
    if target is not None and target == manifest.mark("link", change.path):
        return State.OLDER, ""
    return State.FOREIGN, f"it leads to {target}" if target else "it is no link"


def _look_at_file(change: File, path: Path, manifest: Manifest) -> tuple[State, str]:
    if not path.is_file() or path.is_symlink():
        return State.FOREIGN, "it is no regular file"
    text = _text(path)
    if change.theirs or text == change.text:
        return State.DONE, ""
    if digest(text) == manifest.mark("file", change.path):
        return State.OLDER, ""
    return State.FOREIGN, "it was changed by hand, or is of another installation"


def _look_at_lines(change: Lines, path: Path, manifest: Manifest) -> tuple[State, str]:
    text = _text(path)
    found = slurm_conf.ours(text)
    if found is None and slurm_conf.BEGIN in text:
        return State.FOREIGN, "the lines between our marks were changed by hand"
    if slurm_conf.block(change.lines) == (found or ""):
        return State.DONE, ""
    if found is None:
        return State.MISSING, ""
    if digest(found) == manifest.mark("lines", change.path):
        return State.OLDER, ""
    return State.FOREIGN, "the lines between our marks were changed by hand"


def carry_out(change: Change, place: Place) -> Made:
    """Make it, or replace the older one. Raises OSError, and SlurmFtError for an account that does not exist."""
    path = place.at(change.path)
    if isinstance(change, Directory):
        path.mkdir(mode=change.mode, parents=True, exist_ok=True)
        path.chmod(change.mode)  # whatever the umask says
        _give(path, change.owner, place)
        return Made("directory", change.path, "history" if change.history else "")
    if isinstance(change, Lines):
        return _write_lines(change, path)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if isinstance(change, Link):
        with suppress(FileNotFoundError):
            path.unlink()
        path.symlink_to(change.target)
        return Made("link", change.path, change.target)
    write_whole(path, change.text, change.mode, _owner(change.owner, place))
    return Made("file", change.path, digest(change.text))


def _write_lines(change: Lines, path: Path) -> Made:
    """slurm.conf may be a link into a shared directory; it keeps owner and mode, and what was before is kept beside."""
    path = path.resolve()
    status, text = path.stat(), _text(path)
    owner = (status.st_uid, status.st_gid)
    write_whole(backup_of(path), slurm_conf.without_ours(text), stat.S_IMODE(status.st_mode), owner)
    write_whole(path, slurm_conf.with_ours(text, change.lines), stat.S_IMODE(status.st_mode), owner)
    return Made("lines", change.path, digest(slurm_conf.block(change.lines)))


def backup_of(path: Path) -> Path:
    """Where slurm.conf is kept as it was before our lines."""
    return path.with_name(path.name + BACKUP)


def _give(path: Path, owner: str, place: Place) -> None:
    ids_of_owner = _owner(owner, place)
    if ids_of_owner is not None:
        os.chown(path, *ids_of_owner, follow_symlinks=False)


def _owner(account: str, place: Place) -> tuple[int, int] | None:
    """None for root, whom all belongs to anyway, and in a staging directory: the account may exist only elsewhere."""
    return None if place.staged or account == "root" else ids(account)


def digest(text: str) -> str:
    """The mark of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")

"""Undo what an installation made: each thing only if it is still as it was made."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_ft.install import slurm_conf
from slurm_ft.install.change import Made, Place
from slurm_ft.install.make import backup_of, digest
from slurm_ft.whole_file import write_whole


@dataclass(frozen=True, slots=True)
class Undoing:
    """What is to become of one thing. `keep` says why it is left; empty: it goes. `text` is one line for people."""

    made: Made
    text: str
    keep: str = ""


def plan_undo(everything: Sequence[Made], place: Place, *, purge: bool) -> list[Undoing]:
    """What undoing all of it means now, newest first, without what is gone already. Raises OSError."""
    planned: list[Undoing] = []
    for made in reversed(everything):
        going = {place.at(one.made.path) for one in planned if not one.keep and one.made.kind != "lines"}
        one = _plan_one(made, place, going, purge=purge)
        planned += [one] if one else []
    return planned


def _plan_one(made: Made, place: Place, going: Collection[Path], *, purge: bool) -> Undoing | None:
    """`going` is what will be gone when its turn comes."""
    path = place.at(made.path)
    if made.kind != "lines" and not (path.exists() or path.is_symlink()):
        return None
    if made.kind == "directory":
        return _directory(made, path, going, purge=purge)
    if made.kind == "link":
        changed = not path.is_symlink() or str(path.readlink()) != made.mark
        return Undoing(made, f"link {made.path}", CHANGED if changed else "")
    if made.kind == "file":
        changed = not path.is_file() or path.is_symlink() or digest(_text(path)) != made.mark
        return Undoing(made, f"file {made.path}", CHANGED if changed else "")
    return _lines(made, path)


CHANGED = "it was changed since"
NOT_EMPTY = "it is not empty"


def _directory(made: Made, path: Path, going: Collection[Path], *, purge: bool) -> Undoing:
    if made.mark and not purge:
        return Undoing(made, f"directory {made.path}", "it holds the journal: --purge removes it")
    if not made.mark and any(child not in going for child in path.iterdir()):
        return Undoing(made, f"directory {made.path}", NOT_EMPTY)
    return Undoing(made, f"directory {made.path}" + " with all that it holds" * bool(made.mark))


def _lines(made: Made, path: Path) -> Undoing | None:
    text = _text(path) if path.exists() else ""
    found = slurm_conf.ours(text)
    if found is None and slurm_conf.BEGIN not in text:
        return None
    changed = found is None or digest(found) != made.mark
    return Undoing(made, f"our lines in {made.path}", CHANGED if changed else "")


def undo(undoing: Undoing, place: Place) -> str:
    """Do it; returns why something stays after all, or "". Raises OSError."""
    made, path = undoing.made, place.at(undoing.made.path)
    if made.kind == "lines":
        _take_lines_out(path.resolve())
    elif made.kind != "directory":
        path.unlink()
    elif made.mark:
        shutil.rmtree(path)
    elif any(path.iterdir()):
        return NOT_EMPTY
    else:
        path.rmdir()
    return ""


def _take_lines_out(path: Path) -> None:
    """The copy from before our lines goes too, unless the admin has changed the rest since: then it may be wanted."""
    status = path.stat()
    text = slurm_conf.without_ours(_text(path))
    write_whole(path, text, status.st_mode & 0o7777, (status.st_uid, status.st_gid))
    backup = backup_of(path)
    if backup.is_file() and _text(backup) == text:
        backup.unlink()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")

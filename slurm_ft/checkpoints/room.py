"""Is there room for one more checkpoint? On a full disk the next save fails, and the training with it, once more."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .printable import size

if TYPE_CHECKING:
    from .choose import Search


@dataclass(frozen=True, slots=True)
class Room:
    """In bytes. `free` is what this user may still write to the file system; a quota of one's own is not seen."""

    free: int
    checkpoint: int  # the size of the chosen one

    @property
    def enough(self) -> bool:
        """Whether one more of that size fits: frameworks delete an old one only after a new one is saved."""
        return self.free >= self.checkpoint

    def __str__(self) -> str:
        return f"{size(self.free)} are free, and a checkpoint takes {size(self.checkpoint)}"


def room_for_another(search: Search) -> Room | None:
    """Ask the file system; None without a chosen checkpoint, or where the file system does not tell."""
    files = search.judgement.files if search.judgement else None
    if files is None:
        return None
    try:
        status = os.statvfs(search.directory)
    except OSError:
        return None
    if not status.f_blocks:  # some file systems in user space report nothing
        return None
    return Room(status.f_bavail * status.f_frsize, files.total_bytes)

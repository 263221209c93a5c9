"""Where a directory lies: on storage that other nodes see too, or on this machine alone.

The mounts are those of the machine that asks, usually a login node; a compute node may have others. So a file system of
a disk is only a doubt (the head node may export it), and memory or /tmp is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
LOCAL_PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - it is about them
MEMORY = frozenset(("tmpfs", "ramfs", "devtmpfs"))
DISK = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "overlay", "vfat"))


class Kind(str, Enum):
    """Who sees what is written there."""

    SHARED = "shared"  # a network or parallel file system
    LOCAL = "local"  # surely this node alone
    DISK = "disk"  # a disk of this machine, which may be exported


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file system."""

    point: str
    type: str


def mounts() -> tuple[Mount, ...]:
    """Those of this machine; none where /proc does not say."""
    try:
        text = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ()
    return tuple(parse(text))


def parse(text: str) -> Iterable[Mount]:
    """Out of the text of mountinfo (proc(5)): the fifth word is the place, the first behind ` - ` the type. Pure."""
    for line in text.splitlines():
        before, dash, behind = line.partition(" - ")
        words = before.split(" ")
        if dash and len(words) > 4:
            yield Mount(_unescaped(words[4]), behind.split(" ")[0])


def kind_of(path: str, known: Iterable[Mount]) -> tuple[Kind, str]:
    """What the absolute `path` lies on, and in words why. The last mount at the deepest place counts. Pure."""
    mount = Mount("/", "")
    for one in known:
        if _within(path, one.point) and len(one.point) >= len(mount.point):
            mount = one
    local_place = next((place for place in LOCAL_PLACES if _within(path, place)), None)
    if mount.type in MEMORY:
        return Kind.LOCAL, f"{mount.type}, which is this machine's memory"
    if local_place and (mount.type in DISK or not mount.type or mount.point == "/"):
        return Kind.LOCAL, f"{local_place}, which each node has for itself"
    if mount.type in DISK:
        return Kind.DISK, f"{mount.type} at {mount.point}"
    return Kind.SHARED, f"{mount.type} at {mount.point}" if mount.type else "an unknown file system"


def _within(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place.rstrip('/')}/")


def _unescaped(text: str) -> str:
    """mountinfo writes a blank as \\040, and a few others likewise."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text

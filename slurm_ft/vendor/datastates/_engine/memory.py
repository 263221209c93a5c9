"""How much host memory the engine may use: the smallest of the setting, what is free, and the cgroup's room."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .device import CudaPinner
from .hashing import CHUNK_BYTES
from .pool import Pool, Slab
from .ranks import local_size

if TYPE_CHECKING:
    from .settings import Settings

GIB = 1 << 30
FREE_SHARE = 0.5  # of the memory that is free now, for all ranks of this node together

CGROUP = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def ceiling(host_cache_gib: float | None, local_ranks: int) -> int:
    """Return the pool's limit in bytes for one rank."""
    room = int(min(_available(), _cgroup_room()) * FREE_SHARE) // max(local_ranks, 1)
    return room if host_cache_gib is None else min(int(host_cache_gib * GIB), room)


def make_pool(settings: Settings) -> tuple[Pool, Slab]:
    """Return the pool that the settings allow, and a buffer for each thread that reads live memory."""
    import torch  # noqa: PLC0415 - heavy

    pinner = CudaPinner() if settings.pin_host_cache and torch.cuda.is_available() else None
    limit = ceiling(settings.host_cache_size, local_size())
    return Pool(CHUNK_BYTES, limit, pinner), Slab(CHUNK_BYTES, settings.parser_threads, pinner)


def _available() -> int:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    fields = dict(line.split(":", 1) for line in text.splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


def _cgroup_room() -> int:
    """Return the least room of this process's memory cgroups (version 2, then 1); a huge number without a limit."""
    room = 1 << 62
    for directory, limit, used in _cgroup_files():
        try:
            maximum = (directory / limit).read_text(encoding="ascii").strip()
            current = int((directory / used).read_text(encoding="ascii")) - _idle_cache(directory)
        except (OSError, ValueError):
            continue
        if maximum != "max":
            room = min(room, max(int(maximum) - current, 0))
    return room


def _idle_cache(directory: Path) -> int:
    """Return what the cgroup would give up at once: file pages that nobody used lately."""
    text = (directory / "memory.stat").read_text(encoding="ascii")
    fields = dict(line.split(" ", 1) for line in text.splitlines())
    return int(fields.get("total_inactive_file", fields.get("inactive_file", "0")))


def _cgroup_files() -> list[tuple[Path, str, str]]:
    try:
        lines = OWN_CGROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        own = Path(path.lstrip("/"))
        levels = [own, *own.parents]  # a limit anywhere above counts too
        if controllers == "":
            found += [(CGROUP / level, "memory.max", "memory.current") for level in levels]
        elif "memory" in controllers.split(","):
            found += [(CGROUP / "memory" / level, "memory.limit_in_bytes", "memory.usage_in_bytes") for level in levels]
    return found

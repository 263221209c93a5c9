"""Is everything there that belongs to a checkpoint of its layout? Names and sizes only."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING

from .finding import Finding, Verdict, corrupt, incomplete, inconsistent
from .formats import checker_of
from .layout import Layout, Need, Part, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .files import Files

TEMPORARY = re.compile(r"(^|/)(\.?tmp[-_.].*|.*\.(tmp|part|partial|incomplete))$", re.IGNORECASE)
MOST_RANKS = 1 << 20  # of which a set is built


def check_structure(
    files: Files, layout: Layout, world_size: int | None, siblings: Callable[[], Sequence[Files]]
) -> Iterator[tuple[str, Finding]]:
    """Judge the listing. `siblings` gives other checkpoints of the run, listed only if something is missing."""
    yield from _odd_files(files)
    yield from _unfinished(files, layout)
    if layout.marker and layout.marker not in files.entries:
        yield layout.marker, incomplete("missing: it is written last")
    for part in layout.parts:
        if not files.has(*part.files):
            yield from _missing(part, siblings)
        elif part.ranks is not None:
            yield from _ranks(files, part, world_size, siblings)


def _odd_files(files: Files) -> Iterator[tuple[str, Finding]]:
    if files.overflow:
        yield "", corrupt("more files than a checkpoint has")
    for name, entry in files.entries.items():
        if entry.dangling:
            yield name, incomplete("a link that points nowhere")
        elif entry.outside:
            yield name, inconsistent("a link that leaves the output directory")
        elif not stat.S_ISREG(entry.mode) and checker_of(name):
            yield name, corrupt("not a regular file")
        elif entry.size == 0 and checker_of(name) and not TEMPORARY.search(name):
            yield name, incomplete("empty file")


def _unfinished(files: Files, layout: Layout) -> Iterator[tuple[str, Finding]]:
    for template in layout.unfinished:
        name = template.replace("{name}", files.name)
        beside = name.startswith("../")
        if (files.path.parent / name[3:]).exists() if beside else files.has(name):
            yield "", incomplete(f"{name.removeprefix('../')} says that it is being written or deleted")


def _missing(part: Part, siblings: Callable[[], Sequence[Files]]) -> Iterator[tuple[str, Finding]]:
    what = f"no {part.state.value} ({' or '.join(part.files[:3])})"
    if part.need is Need.REQUIRED and part.state is State.OPTIMIZER and _nobody_has(part, siblings()):
        yield "", Finding(Verdict.WEIGHTS_ONLY, f"{what}, as in its siblings: the model was saved alone")
    elif part.need is Need.REQUIRED:
        yield "", incomplete(what)
    elif part.need is Need.EXPECTED and not _nobody_has(part, siblings()):
        yield "", Finding(Verdict.DEGRADED, what)


def _nobody_has(part: Part, siblings: Sequence[Files]) -> bool:
    """A part that no sibling has either was never meant to be saved; without siblings it counts as missing."""
    return bool(siblings) and not any(sibling.has(*part.files) for sibling in siblings)


def _ranks(
    files: Files, part: Part, world_size: int | None, siblings: Callable[[], Sequence[Files]]
) -> Iterator[tuple[str, Finding]]:
    found, told = ranks_of(files, part)
    if not found:
        return
    if max(found) >= MOST_RANKS:
        yield "", inconsistent(f"{part.state.value} of rank {max(found)}: there is no such rank")
        return
    gaps = set(range(max(found) + 1)) - found
    wanted = told or world_size or 0
    if len(told_counts := told_worlds(files, part)) > 1:
        yield "", inconsistent(f"{part.state.value} files of {' and '.join(map(str, sorted(told_counts)))} ranks")
    elif gaps:
        yield "", _short(part, f"{part.state.value} of rank {min(gaps)} is missing")
    elif wanted and len(found) < wanted:
        yield "", _short(part, f"{part.state.value} of {len(found)} ranks where {wanted} saved")
    elif not wanted:
        yield from _fewer_than_sibling(len(found), part, siblings())


def _fewer_than_sibling(count: int, part: Part, siblings: Sequence[Files]) -> Iterator[tuple[str, Finding]]:
    before = len(ranks_of(siblings[0], part)[0]) if siblings else 0
    if count < before:
        reason = f"{part.state.value} of {count} ranks where {siblings[0].name} has {before}"
        yield "", Finding(Verdict.INCOMPLETE if part.need is Need.REQUIRED else Verdict.DEGRADED, reason)


def _short(part: Part, reason: str) -> Finding:
    return Finding(Verdict.DEGRADED, reason) if part.need is Need.OPTIONAL else incomplete(reason)


def count_ranks(files: Files, layout: Layout) -> int | None:
    """Return how many ranks left files with their number; None where no part has one."""
    found = [ranks_of(files, part) for part in layout.parts if part.ranks is not None]
    return max((max(told, len(ranks)) for ranks, told in found), default=0) or None


def ranks_of(files: Files, part: Part) -> tuple[set[int], int]:
    """Return the ranks whose files are there, and the world size that the names tell (0: they do not)."""
    matches = _matches(files, part)
    worlds = told_worlds(files, part)
    return {int(match["rank"]) for match in matches}, max(worlds, default=0)


def told_worlds(files: Files, part: Part) -> set[int]:
    """Return the different world sizes that the names tell."""
    return {int(match["of"]) for match in _matches(files, part) if match.groupdict().get("of")}


def _matches(files: Files, part: Part) -> list[re.Match[str]]:
    pattern = part.ranks
    if pattern is None:
        return []
    names = {name: None for glob in part.files for name in files.matching(glob)}
    return [match for name in names if (match := pattern.search(name))]

"""Is the content of a checkpoint's files what their formats say? The shared checkers, applied to every file."""

from __future__ import annotations

import stat
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from .deep import Reading
from .errors import UnreadableCheckpointError
from .finding import Finding, Level, incomplete, note
from .formats import GROUP_CHECKERS, checker_of
from .formats.source import Checked, DamagedError, Span, Values, opened
from .formats.stub_pickle import ITEM_BYTES
from .manifest import Manifest, check_manifest, digest_spans, has_manifest, read_manifest
from .structure import TEMPORARY
from .validation import failed_before

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .files import Files


@dataclass(frozen=True, slots=True)
class Content:
    """What was found in the files: (file, finding); and what is left to read for a deep check."""

    findings: tuple[tuple[str, Finding], ...]
    readings: tuple[Reading, ...]
    manifest: Manifest | None = None


def check_content(files: Files, level: Level) -> Content:
    """Judge every file whose format is known. Raises UnreadableCheckpointError."""
    manifest, findings = _manifest(files)
    spans: dict[str, tuple[Span, ...]] = {}
    for name, checked in _all(files, level):
        findings.extend((name, finding) for finding in checked.findings if not _covered(finding, manifest, name))
        spans[name] = spans.get(name, ()) + checked.spans
    if manifest is not None and level is Level.DEEP:
        spans.update({name: _with_digests(manifest, name, spans.get(name, ())) for name in manifest.files})
    readings = tuple(Reading(name, files.location(name), found) for name, found in spans.items() if found)
    return Content(tuple(findings), readings, manifest)


def _manifest(files: Files) -> tuple[Manifest | None, list[tuple[str, Finding]]]:
    if not has_manifest(files):
        return None, []
    try:
        manifest = read_manifest(files)
    except DamagedError as error:
        return None, [("", error.finding)]
    if manifest is None:
        return None, [("", note("its manifest is of a newer version than this"))]
    failed = failed_before(files.path)
    return manifest, [*check_manifest(files, manifest), *([("", failed)] if failed else [])]


def _covered(finding: Finding, manifest: Manifest | None, name: str) -> bool:
    """A note about missing checksums is moot where the manifest has digests."""
    return bool(finding.note) and manifest is not None and name in manifest.files


def _all(files: Files, level: Level) -> Iterator[tuple[str, Checked]]:
    for name, entry in files.entries.items():
        if entry.size and not entry.outside and not TEMPORARY.search(name):
            yield name, _check(files, name, level)
    for check in GROUP_CHECKERS:
        try:
            yield from check(files, level)
        except FileNotFoundError:
            yield "", Checked((incomplete("a file vanished during the check"),))
        except OSError as error:
            raise UnreadableCheckpointError(error.filename or files.path, error) from error


def _check(files: Files, name: str, level: Level) -> Checked:
    checker = checker_of(name)
    if checker is None:
        return Checked()
    if not stat.S_ISREG(files.entries[name].mode):
        return Checked()  # check_structure says so
    path = files.location(name)
    try:
        with opened(path, name) as source:
            return checker(source, level)
    except FileNotFoundError:
        return Checked((incomplete("it vanished during the check"),))
    except OSError as error:
        raise UnreadableCheckpointError(path, error) from error


def _with_digests(manifest: Manifest, name: str, spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """One reading per chunk for both: its digest, and the numbers that lie in it. CRCs would say nothing more."""
    chunks = digest_spans(manifest, name)
    if not chunks:
        return spans
    values = sorted((value for span in spans for value in span.values), key=lambda value: value.offset)
    merged, first = [], 0
    for chunk in chunks:
        while first < len(values) and values[first].offset + values[first].length <= chunk.offset:
            first += 1
        inside = (_part(value, chunk) for value in takewhile(_begins_before(chunk), values[first:]))
        merged.append(replace(chunk, values=tuple(value for value in inside if value.length > 0)))
    return tuple(merged)


def _begins_before(chunk: Span) -> Callable[[Values], bool]:
    return lambda value: value.offset < chunk.offset + chunk.length


def _part(value: Values, chunk: Span) -> Values:
    """The whole numbers of a stretch that lie in the chunk."""
    size = ITEM_BYTES.get(value.dtype, 1)
    start = value.offset + max(0, -(-(chunk.offset - value.offset) // size) * size)
    end = min(value.offset + value.length, chunk.offset + chunk.length)
    return replace(value, offset=start, length=(end - start) // size * size)

"""Compare files with a manifest's digests: the part of a deep check that each rank can do for its own files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from . import deep
from .deep import Reading
from .errors import UnreadableCheckpointError
from .files import list_files
from .finding import Finding, combine, incomplete
from .manifest import Manifest, check_manifest, digest_spans
from .progress import Silent

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from .progress import Progress


def verify(
    directory: Path, manifest: Manifest, names: Collection[str] | None = None, progress: Progress | None = None
) -> Finding:
    """Return the worst finding over `names` (all listed files if None); its reason names the file.

    Raises UnreadableCheckpointError when the storage does not answer.
    """
    try:
        files = list_files(directory, directory)
    except FileNotFoundError:
        return incomplete("it vanished during the check")
    wanted = set(manifest.files) if names is None else set(names)
    found = [(name, finding) for name, finding in check_manifest(files, manifest) if name in wanted or not name]
    readings = [Reading(name, files.location(name), digest_spans(manifest, name)) for name in sorted(wanted)]
    if all(finding.resumable for _, finding in found):
        try:
            found += deep.run(readings, progress or Silent(), None, files.name).findings
        except OSError as error:
            raise UnreadableCheckpointError(error.filename or directory, error) from error
    return combine(
        one if not name or one.resumable else replace(one, reason=f"{name}: {one.reason}") for name, one in found
    )

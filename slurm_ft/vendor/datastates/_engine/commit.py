"""Turning what all ranks wrote into a checkpoint, in one step that a crash cannot split.

Files and their directories are durable -> each rank's record -> rank 0 has all records -> manifest -> marker -> rename
-> the parent directory. Ranks meet in the file system only: a collective in a thread would meet the training's own in
any order. Time limits count by the monotonic clock.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .durable import sync_directory, sync_file, write_whole
from .errors import AbandonedError, AlreadyThereError, EngineError
from .hashing import file_digests
from .manifest import FileRecord, RankRecord, decode_record, encode_manifest, encode_marker, encode_record
from .paths import LATEST, MANIFEST, MARKER, OWNER, TRASH_PREFIX, checkpoint_name, record_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .manifest import Save

# Seconds between looks for another rank's record: short at first, then easy on a shared file system.
POLLS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def report(run_dir: Path, save: Save, record: RankRecord) -> None:
    """Say what this rank wrote, durably. Raises OSError; FileNotFoundError: rank 0 has given the save up."""
    write_whole(run_dir / record_name(record.rank), encode_record(save, record))


def gather(
    run_dir: Path,
    save: Save,
    timeout: float,
    given_up: Callable[[], bool],
    ranks: Sequence[int] | None = None,
) -> list[RankRecord]:
    """Return the records of all ranks, or of `ranks`. Raises EngineError if one failed or did not answer in time."""
    deadline = time.monotonic() + timeout
    wanted = range(save.world_size) if ranks is None else ranks
    records: list[RankRecord] = []
    polls = iter(POLLS)
    while len(records) < len(wanted):
        rank = wanted[len(records)]
        content = _read(run_dir / record_name(rank))
        if content is not None:
            records.append(_accept(save, rank, content))
            continue
        if given_up():
            raise AbandonedError("the process is leaving")
        if time.monotonic() > deadline:
            raise AbandonedError(
                f"rank {rank} did not report its part of step {save.step} within {timeout:.0f} s",
                "Is the output directory on storage that all nodes share? Raise commit_timeout if it is only slow",
            )
        time.sleep(next(polls, POLLS[-1]))
    return records


def _accept(save: Save, rank: int, content: bytes) -> RankRecord:
    record = decode_record(save, rank, content)
    if record.error:
        raise AbandonedError(f"rank {rank} could not save step {save.step}: {record.error}")
    return record


def seal(run_dir: Path, save: Save, records: Sequence[RankRecord], *, replace: bool = False) -> Path:
    """Make the checkpoint: everything durable, manifest, marker, rename. Returns where it lies now.

    `replace`: a committed checkpoint of this step gives way; without it that one stays and ours is given up.
    Raises OSError or EngineError; until the rename nothing outside `run_dir` has changed.
    """
    root, directory = run_dir.parent, run_dir / checkpoint_name(save.step)
    owner = json.loads((run_dir / OWNER).read_bytes())
    others = _other_files(directory, {name for record in records for name in record.files})
    manifest = encode_manifest(save, [*records, RankRecord(0, others, algorithm=records[0].algorithm)], owner)
    _check_sizes(directory, records)
    for folder in [path for path, _, _ in os.walk(directory, topdown=False)]:
        sync_directory(Path(folder))
    write_whole(directory / MANIFEST, manifest)
    write_whole(directory / MARKER, encode_marker(save, manifest))
    final = _rename(directory, root, save, replace=replace)
    sync_directory(root)
    write_whole(root / LATEST, f"{final.name}\n".encode())
    shutil.rmtree(run_dir, ignore_errors=True)
    return final


def abandon(run_dir: Path) -> None:
    """Remove a save that will not be committed. Ranks that still write find their directory gone."""
    doomed = run_dir.with_name(TRASH_PREFIX + run_dir.name.lstrip("."))
    try:
        run_dir.rename(doomed)
    except OSError:
        doomed = run_dir
    shutil.rmtree(doomed, ignore_errors=True)


def _read(path: Path) -> bytes | None:
    """Return a file's content; None if it is not there yet. Opening it, not listing: caches of NFS go stale."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, PermissionError):
        return None
    except OSError as error:
        if error.errno == errno.ESTALE:
            return None
        raise


def _other_files(directory: Path, known: set[str]) -> dict[str, FileRecord]:
    """Hash and make durable what the framework wrote by itself: configuration, tokenizer, trainer state."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            relative = path.relative_to(directory).as_posix()
            if relative not in known:
                sync_file(path)
                size, digests = file_digests(path)
                found[relative] = FileRecord(size, tuple(digests))
    return found


def _check_sizes(directory: Path, records: Sequence[RankRecord]) -> None:
    for record in records:
        for name, file in record.files.items():
            size = (directory / name).stat().st_size
            if size != file.size:
                raise EngineError(f"{name} has {size} bytes, rank {record.rank} wrote {file.size}")


def _rename(directory: Path, root: Path, save: Save, *, replace: bool) -> Path:
    final = root / checkpoint_name(save.step)
    try:
        directory.rename(final)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        if (final / MARKER).exists() and not replace:
            raise AlreadyThereError(f"{final} is there already, saved by another training; it stays") from error
        final.rename(root / f"{TRASH_PREFIX}{final.name}-{save.attempt}")  # an interrupted save of something else
        directory.rename(final)
    return final

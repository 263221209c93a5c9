"""The journal's file: one entry a line, appended and flushed to the disk before anything is done about it.

Lives in the state directory as `journal.jsonl`, readable by its owner and group only: it names users' jobs. When it
has grown to `ROTATE_AT` it becomes `journal.jsonl.1`, and the one before that goes; both are read.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path

from slurm_ft.journal_entry import Entry, from_json, to_json
from slurm_ft.state_file import give_to_owner_of, open_plain, read_newest

FILE_NAME = "journal.jsonl"
OLD_NAME = FILE_NAME + ".1"
ROTATE_AT = 4 * 1024 * 1024  # bytes, about 7,000 decisions
READ_AT_MOST = 4 * ROTATE_AT  # bytes of one file; it is larger only if something else wrote it


def append(state_dir: Path, entry: Entry, rotate_at: int = ROTATE_AT) -> None:
    """Append one entry with a single write, so that concurrent hooks never mix. Raises OSError.

    Behind a line that a crash or a full disk has torn it starts a new one.
    """
    state_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
    path = state_dir / FILE_NAME
    line = json.dumps(to_json(entry), separators=(",", ":"), ensure_ascii=True).encode("ascii") + b"\n"
    descriptor = open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        give_to_owner_of(state_dir, descriptor)
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        text = b"\n" * torn + line
        if os.write(descriptor, text) < len(text):
            raise OSError(f"{path}: the entry was cut off: is the disk full?")
        os.fsync(descriptor)
        if size > rotate_at:
            _rotate(path, descriptor)
    finally:
        os.close(descriptor)


def _rotate(path: Path, descriptor: int) -> None:
    """Of several hooks that find it due, one does it: a second one would rename the fresh file over the old one.

    The lock is on the file and not on its name; whoever holds it and finds another file of that name came too late.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    if os.path.samestat(path.stat(), os.fstat(descriptor)):
        path.replace(path.with_name(OLD_NAME))


def entries(state_dir: Path, raw_id: int | None = None) -> list[Entry]:
    """All entries, or those of one job, oldest first; a torn line is passed over. Raises OSError."""
    newer, older = _text(state_dir / FILE_NAME), _text(state_dir / OLD_NAME)
    if raw_id is None:
        return _parsed(line for text in (older, newer) for line in text.splitlines())
    mark = b'"raw_id":%d,' % raw_id
    found = _parsed(line for text in (older, newer) for line in _lines_with(text, mark))
    return [entry for entry in found if entry.key.raw_id == raw_id]


def recent(state_dir: Path, since: float) -> list[Entry]:
    """The entries since that time (unix seconds), oldest first, without a look at what is older. Raises OSError."""
    newer, older = _text(state_dir / FILE_NAME), _text(state_dir / OLD_NAME)
    backwards = (_parse(line) for text in (newer, older) for line in _backwards(text))
    found = list(takewhile(lambda entry: entry is None or entry.at >= since, backwards))
    return [entry for entry in reversed(found) if entry is not None]


def _text(path: Path) -> bytes:
    """Of the two files read the newer one first: rotated meanwhile, it is read twice, which harms nobody."""
    return read_newest(path, READ_AT_MOST)


def _lines_with(text: bytes, mark: bytes) -> Iterator[bytes]:
    """The lines that hold `mark`. To search megabytes takes milliseconds, to split them into lines much longer."""
    at = text.find(mark)
    while at >= 0:
        end = text.find(b"\n", at)
        end = len(text) if end < 0 else end
        yield text[text.rfind(b"\n", 0, at) + 1 : end]
        at = text.find(mark, end)


def _backwards(text: bytes) -> Iterator[bytes]:
    end = len(text)
    while end > 0:
        start = text.rfind(b"\n", 0, end)
        yield text[start + 1 : end]
        end = start


def _parsed(lines: Iterable[bytes]) -> list[Entry]:
    return [entry for line in lines if (entry := _parse(line)) is not None]


def _parse(line: bytes) -> Entry | None:
    try:
        return from_json(json.loads(line))
    except (ValueError, RecursionError):
        return None

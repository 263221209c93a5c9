"""Checks of single files that need no framework: is this a whole, undamaged `torch.save` file?

`torch.save` writes a zip archive with a CRC-32 for each record; `torch.load` does not check them, `zipfile` does. So a
flipped bit or a hole in a tensor, which torch would load without a word, is found here. Reading is in pieces of a
megabyte; only the archive's directory is held in memory. The cost is one read of the file, about a second per
gigabyte.

Two formats carry no checksums and are `unverified`, which is resumable: archives written with
`torch.serialization.set_crc32_options(False)`, and the pickle stream that torch wrote before version 1.6. Refusing
them would send their owners back to step 0 after every fault.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import struct
import zipfile
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from slurm_ft.checkpoints.finding import VALID, Condition, Finding, UnreadableCheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _typeshed import WriteableBuffer

# A pickle of protocol 2 holding torch's magic number 0x1950a86a20f9469cfc6c (torch/serialization.py, `_legacy_save`).
LEGACY_MAGIC = bytes.fromhex("80 02 8a 0a 6c fc 9c 46 f9 20 6a a8 50 19")

# What `zipfile` raises on damaged archives besides BadZipFile: it trusts the numbers that it finds.
DAMAGE = (
    zipfile.BadZipFile,
    EOFError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    UnicodeDecodeError,
    ValueError,
    struct.error,
    zlib.error,
)

# A damaged archive can make `zipfile` seek to a place that cannot exist: that is the file's fault, not the storage's.
IMPOSSIBLE_SEEK = (errno.EINVAL, errno.EOVERFLOW)


class WatchedFile(io.FileIO):
    """A file that remembers its first storage error, because `zipfile` reports some of them as a bad archive."""

    failed: OSError | None = None

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Read as FileIO does."""
        with self._watch():
            return super().readinto(buffer)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Seek as FileIO does."""
        with self._watch():
            return super().seek(offset, whence)

    @contextmanager
    def _watch(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in IMPOSSIBLE_SEEK:
                self.failed = self.failed or error
            raise


def check_torch_file(path: Path) -> Finding:
    """Judge one file. Raises UnreadableCheckpointError when the storage does not answer."""
    try:
        status = path.stat()  # before open, which would wait for ever for the writer of a named pipe
        if not stat.S_ISREG(status.st_mode):
            return Finding(Condition.REFUSED, "not a regular file")
        if status.st_size == 0:
            return Finding(Condition.INCOMPLETE, "empty file")
        return _check_opened(path)
    except FileNotFoundError:
        return Finding(Condition.INCOMPLETE, "it vanished during the check")
    except OSError as error:
        raise UnreadableCheckpointError(path, error) from error


def _check_opened(path: Path) -> Finding:
    with WatchedFile(path) as raw, io.BufferedReader(raw) as file:
        finding = _check_content(file)
        if raw.failed:
            raise raw.failed
        return finding


def _check_content(file: IO[bytes]) -> Finding:
    start = file.read(len(LEGACY_MAGIC))
    if start == LEGACY_MAGIC:
        return Finding(Condition.UNVERIFIED, "written in torch's old pickle format, which has no checksums")
    if not start.startswith(b"PK"):
        return Finding(Condition.CORRUPT, "it does not begin as a torch.save file does")
    return _check_archive(file)


def _check_archive(file: IO[bytes]) -> Finding:
    try:
        with zipfile.ZipFile(file) as archive:
            return _check_records(archive)
    except zipfile.BadZipFile as error:
        if "not a zip file" in str(error):
            return Finding(Condition.INCOMPLETE, "truncated: the archive has no end record")
        return Finding(Condition.CORRUPT, f"damaged archive: {error}")
    except OSError as error:
        if error.errno not in IMPOSSIBLE_SEEK:
            raise
        return Finding(Condition.CORRUPT, "damaged archive: it points outside the file")
    except DAMAGE as error:
        return Finding(Condition.CORRUPT, f"damaged archive: {error or type(error).__name__}")


def _check_records(archive: zipfile.ZipFile) -> Finding:
    records = archive.infolist()
    if not any(record.filename.endswith("/data.pkl") and record.file_size for record in records):
        return Finding(Condition.CORRUPT, "a zip archive, but without the data.pkl of torch.save")
    if all(record.CRC == 0 for record in records if record.file_size):
        for record in records:
            archive.open(record).close()  # compares the record's own header with the directory
        return Finding(Condition.UNVERIFIED, "saved without checksums")
    damaged = archive.testzip()
    if damaged is not None:
        return Finding(Condition.CORRUPT, f"record {damaged} fails its checksum")
    return VALID

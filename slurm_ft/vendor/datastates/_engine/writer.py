"""The threads that move chunks to the disk: copy, hash, write, fsync.

Files are written with O_DIRECT where the file system has it: the bytes go from the aligned buffer to the disk without
the page cache. On the machine of the measurements that cost an eighth of the CPU time of buffered writes, and was
durable sooner. Elsewhere writes are buffered and started early, so that fsync finds little left to do.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import threading
from typing import TYPE_CHECKING

from .errors import TornError
from .hashing import CHUNK_BYTES, chunk_digest
from .manifest import FileRecord, digests_by_file
from .pool import PAGE, Slab

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .image import FileImage
    from .pool import Buffer
    from .snapshot import Chunk, Snapshot


SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h


class OutputFile:
    """A file being written out of order by several threads; whoever writes its last chunk makes it durable."""

    def __init__(self, image: FileImage, *, direct: bool) -> None:
        self._image = image
        self._lock = threading.Lock()
        self._unwritten = image.chunk_count
        self._descriptor = -1
        self._direct = direct
        self._open()
        if not self._unwritten:
            self._finish()

    def write(self, chunk: Chunk, buffer: Buffer) -> None:
        """Write one chunk. Raises OSError."""
        offset = chunk.index * CHUNK_BYTES
        length = -(-chunk.length // PAGE) * PAGE if self._direct else chunk.length
        try:
            _write_all(self._descriptor, buffer.view[:length], offset)
        except OSError as error:
            if not (self._direct and error.errno == errno.EINVAL):
                raise
            self._go_buffered()
            _write_all(self._descriptor, buffer.view[: chunk.length], offset)
        if not self._direct:
            _start_writeback(self._descriptor, offset, chunk.length)
        with self._lock:
            self._unwritten -= 1
            if self._unwritten:
                return
        self._finish()

    def close(self) -> None:
        """Close it, finished or not."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        if self._direct:
            try:
                self._descriptor = os.open(self._image.path, flags | os.O_DIRECT, 0o666)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._direct = False
        if not self._direct:
            self._descriptor = os.open(self._image.path, flags, 0o666)

    def _go_buffered(self) -> None:
        """This file system wants another alignment than a page."""
        import fcntl  # noqa: PLC0415 - only on unusual file systems

        with self._lock:
            self._direct = False
            flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)

    def _finish(self) -> None:
        os.ftruncate(self._descriptor, self._image.size)
        os.fsync(self._descriptor)
        self.close()


def _write_all(descriptor: int, view: memoryview, offset: int) -> None:
    """Write at an offset until all is written. A short write of a direct file ends on a block boundary."""
    while view:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _start_writeback(descriptor: int, offset: int, length: int) -> None:
    """Ask the kernel to begin writing these pages now. Only a hint: fsync is what makes them durable."""
    with contextlib.suppress(AttributeError):  # a libc without it
        _libc().sync_file_range(descriptor, ctypes.c_int64(offset), ctypes.c_int64(length), SYNC_FILE_RANGE_WRITE)


def write_images(snapshot: Snapshot, images: Sequence[FileImage], scratch: Slab, *, direct: bool) -> None:
    """Write a snapshot's files and make them durable. Raises what made the save fail."""
    with contextlib.ExitStack() as stack:
        files = {}
        for image in images:
            files[image] = OutputFile(image, direct=direct)
            stack.callback(files[image].close)
        workers = Workers(snapshot, files, scratch)
        stack.callback(workers.join)
        workers.start()
        snapshot.wait_written()


def records_of(snapshot: Snapshot, images: Sequence[FileImage]) -> dict[Path, FileRecord]:
    """Return what was written, by path."""
    digests = digests_by_file(snapshot.chunks)
    return {image.path: FileRecord(image.size, digests.get(str(image.path), ()), image.tensors) for image in images}


class Workers:
    """The worker threads of one save. They end with it: an idle engine has none."""

    def __init__(self, snapshot: Snapshot, files: Mapping[FileImage, OutputFile], slab: Slab) -> None:
        self._snapshot = snapshot
        self._files = files
        self._threads = [
            threading.Thread(target=self._run, args=(buffer,), name=f"datastates-writer-{i}", daemon=True)
            for i, buffer in enumerate(slab.buffers)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait for them; they end when the snapshot is written or has failed."""
        for thread in self._threads:
            thread.join()

    def _run(self, scratch: Buffer) -> None:
        try:
            while (claim := self._snapshot.next()) is not None:
                self._move(*claim, scratch)
        except Exception as error:  # whatever it is, the training must not wait for this thread
            self._snapshot.fail(error)

    def _move(self, chunk: Chunk, held: Buffer | None, scratch: Buffer) -> None:
        if held is None:
            copies = chunk.image.assemble(chunk.index, scratch.address)
            if copies is not None:
                copies.wait()
            if not self._snapshot.copied(chunk):
                return
        elif chunk.copies is not None:
            chunk.copies.wait()
        buffer = held or scratch
        chunk.digest = chunk_digest(buffer.view[: chunk.length])
        if chunk.expected is not None and chunk.expected != chunk.digest:
            raise TornError(f"chunk {chunk.index} of {chunk.image.path.name} changed between capture and copy")
        self._files[chunk.image].write(chunk, buffer)
        self._snapshot.written(chunk)

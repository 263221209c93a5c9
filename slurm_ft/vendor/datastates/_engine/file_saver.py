"""Single files, saved in the background one after another: for callers that save by path and not by checkpoint.

A file is written beside its final name and renamed once it is durable, so a name never stands for half a file. No call
here is collective. Nothing is raised for a save that fails; who asked for it learns from its `Job`.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import queue
import secrets
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .capture import Capture
from .device import Devices
from .durable import sync_directory, sync_file
from .errors import AbandonedError, EngineError
from .fence import Fence
from .hashing import file_digests
from .manifest import FileRecord
from .memory import make_pool
from .snapshot import Snapshot
from .writer import records_of, write_images

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch

    from .image import FileImage
    from .settings import Settings

log = logging.getLogger("datastates.engine")


class Job:
    """What is done in the background, in its turn. `error`: why it failed, once it is over."""

    def __init__(self, what: str, run: Callable[[], object]) -> None:
        self.what = what
        self.error: Exception | None = None
        self._run = run
        self._over = threading.Event()

    def run(self) -> None:
        """Do it."""
        try:
            self._run()
        except Exception as error:  # whatever it is, the next job's turn must come
            self.error = error
            log.error("%s failed: %s", self.what, error, exc_info=None if _is_expected(error) else error)
        finally:
            self._over.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether it is over, after `timeout` seconds at the latest."""
        return self._over.wait(timeout)


class FileSaver:
    """Saves as `torch.save` does, without making the training wait for the disk."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.leaving = False  # the time to finish is over
        self._pid = os.getpid()
        self._devices = Devices()
        self._pool, self._scratch = make_pool(settings)
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._last: Job | None = None
        self._snapshots: list[Snapshot] = []
        self._thread: threading.Thread | None = None
        self.fence = Fence(settings, self._pool, self._busy)
        self.before_close: list[Callable[[], None]] = []
        atexit.register(self.close)

    def save(
        self,
        value: object,
        path: Path,
        vouched: Iterable[torch.Tensor] = (),
        done: Callable[[FileRecord], object] = lambda _: None,
    ) -> Job:
        """Save to a file whose directory exists; `done` is called in the background with what was written.

        `vouched`: tensors that change in optimizer steps only. Raises what torch.save raises for a value that it cannot
        save, or OSError.
        """
        tensors = tuple(vouched)
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        capture = Capture(part.parent, part.parent, self._pool, self._devices, lambda: self.fence.live(tensors))
        lazy = self.fence.copies_late()
        self.fence.pace.begin(lazy=lazy)
        try:
            capture.torch_save(value, part)
            images, chunks = capture.finish(debug=self.settings.debug_hash)
        except BaseException:
            capture.discard()
            part.unlink(missing_ok=True)
            raise
        snapshot = self._guard(Snapshot(self._pool, chunks), path, lazy=lazy)
        return self.later(f"saving {path}", lambda: done(self._write(snapshot, images, part, path)))

    def later(self, what: str, run: Callable[[], object]) -> Job:
        """Do something in the background, after all that was asked for before."""
        job = self._last = Job(what, run)
        self._queue.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="datastates-files", daemon=True)
            self._thread.start()
        return job

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether nothing is left to do, after `timeout` seconds at the latest."""
        return self._last is None or self._last.wait(timeout)

    def close(self) -> None:
        """Finish what was asked for, within `drain_timeout`, and let go of the optimizers. Safe to call again."""
        if self.leaving or os.getpid() != self._pid:
            return
        atexit.unregister(self.close)
        for call in self.before_close:
            call()
        self.fence.settle()
        finished = self.wait(self.settings.drain_timeout)
        self.leaving = True
        if not finished:
            log.error("saves were not durable after %.0f s; given up", self.settings.drain_timeout)
            for snapshot in self._snapshots:
                snapshot.fail(AbandonedError("the process is leaving"))
        self.fence.remove()
        self._queue.put(None)
        if finished:
            self._pool.close()

    def _guard(self, snapshot: Snapshot, path: Path, *, lazy: bool) -> Snapshot:
        self._devices.follow()
        snapshot.hold_devices()
        self._snapshots = [other for other in self._snapshots if not other.failed and other.bytes_written < other.bytes]
        self._snapshots.append(snapshot)
        self.fence.watch(snapshot, f"saving {path}")
        if not lazy:
            self.fence.settle()
        return snapshot

    def _write(self, snapshot: Snapshot, images: Sequence[FileImage], part: Path, path: Path) -> FileRecord:
        try:
            write_images(snapshot, images, self._scratch, direct=self.settings.direct_io)
            record = records_of(snapshot, images).get(part) or _hashed(part)
            part.replace(path)
            sync_directory(path.parent)
        except BaseException as error:
            if isinstance(error, Exception):
                snapshot.fail(error)
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        return record

    def _busy(self) -> bool:
        return self._last is not None and not self._last.wait(0)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job.run()


def _hashed(path: Path) -> FileRecord:
    """Make durable and hash what torch itself had to write: memory that cannot be copied in the background."""
    sync_file(path)
    size, digests = file_digests(path)
    return FileRecord(size, tuple(digests))


def _is_expected(error: Any) -> bool:
    return isinstance(error, EngineError | OSError)

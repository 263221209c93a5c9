"""One save from the moment the saver has returned until it is committed or given up: in threads of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import commit
from .errors import AbandonedError
from .manifest import RankRecord, Save
from .paths import checkpoint_name
from .writer import records_of, write_images

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .image import FileImage
    from .pool import Slab
    from .settings import Settings
    from .snapshot import Snapshot


@dataclass(frozen=True)
class Plan:
    """What to save, and where: the same save on all ranks, this rank's part of it."""

    save: Save
    rank: int
    run_dir: Path
    settings: Settings
    replace: bool = False  # a committed checkpoint of this step that a dead training left

    @property
    def directory(self) -> Path:
        """Where the checkpoint lies until it is committed."""
        return self.run_dir / checkpoint_name(self.save.step)


class Flight:
    """A save under way."""

    def __init__(
        self,
        plan: Plan,
        images: Sequence[FileImage],
        snapshot: Snapshot,
        scratch: Slab,
        listeners: tuple[Callable[[Flight], None], Callable[[Path], None]],
    ) -> None:
        self.plan = plan
        self.snapshot = snapshot
        self.error: Exception | None = None
        self.committed: Path | None = None  # on rank 0
        self.seconds = 0.0  # until it was durable
        self._images = images
        self._scratch = scratch
        self._on_done, self._on_commit = listeners
        self._leaving = False
        self._started = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="datastates-commit", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it is over, well or badly."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether it is over, after `timeout` seconds at the latest."""
        return self._done.wait(timeout)

    def abandon(self, reason: str) -> None:
        """Give it up; what is on the disk of it goes."""
        self._leaving = True
        self.snapshot.fail(AbandonedError(reason))

    def seconds_left(self, last_rate: float | None) -> float | None:
        """Estimate when it is durable, from its own speed or the last save's (bytes per second)."""
        elapsed = time.monotonic() - self._started
        written, left = self.snapshot.bytes_written, self.snapshot.bytes - self.snapshot.bytes_written
        rate = written / elapsed if written and elapsed > 0 else last_rate
        return left / rate if rate else None

    def _run(self) -> None:
        try:
            self._write()
            if self.plan.rank == 0:
                records = commit.gather(
                    self.plan.run_dir, self.plan.save, self.plan.settings.commit_timeout, lambda: self._leaving
                )
                self.committed = commit.seal(self.plan.run_dir, self.plan.save, records, replace=self.plan.replace)
            self.seconds = time.monotonic() - self._started
        except Exception as error:  # whatever it is, it must be counted and not end the thread silently
            self.error = error
            self.snapshot.fail(error)
            give_up(self.plan, error)
        finally:
            self._on_done(self)
            self._done.set()
        if self.committed is not None:
            self._on_commit(self.committed)

    def _write(self) -> None:
        write_images(self.snapshot, self._images, self._scratch, direct=self.plan.settings.direct_io)
        written = records_of(self.snapshot, self._images)
        files = {path.relative_to(self.plan.directory).as_posix(): record for path, record in written.items()}
        commit.report(self.plan.run_dir, self.plan.save, RankRecord(self.plan.rank, files))


def give_up(plan: Plan, error: Exception) -> None:
    """Make sure that nobody waits for this save: rank 0 removes it, another rank tells rank 0."""
    if plan.rank == 0:
        commit.abandon(plan.run_dir)
        return
    with contextlib.suppress(OSError):
        commit.report(plan.run_dir, plan.save, RankRecord(plan.rank, {}, error=str(error) or type(error).__name__))

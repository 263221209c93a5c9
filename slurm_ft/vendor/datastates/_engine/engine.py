"""The engine: decides with all ranks whether to save, captures, fences the optimizer, and counts what happens.

Nothing here ends the training. A save that fails is counted and logged; after `max_failures` in a row saving is
disabled, which is said once, loudly.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .._checkpoints.counters import CounterFile, Counters
from . import ranks as rank_module
from . import retention
from .cadence import Cadence
from .capture import Capture
from .companion import Companion, start_where_missing
from .device import Devices
from .durable import encode, sync_directory
from .errors import AbandonedError, AlreadyThereError
from .fence import Fence
from .flight import Flight, Plan, give_up
from .manifest import Save
from .memory import make_pool
from .paths import MANIFEST, MARKER, OWNER, checkpoint_name, step_of, temporary_name
from .run_identity import is_gone, read_owner, this_process
from .snapshot import Snapshot
from .status import Outcome, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from .ranks import Ranks
    from .settings import Settings
    from .snapshot import Settled

log = logging.getLogger("datastates.engine")


class Engine:
    """Saves below `root` in the background. One per training process; every rank makes its own."""

    def __init__(self, root: Path | str, settings: Settings, ranks: Ranks | None = None) -> None:
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 - absolute, but with the user's own links in it
        self.settings = settings
        self.ranks = ranks if ranks is not None else rank_module.discover()
        self.on_commit: list[Callable[[Path], None]] = [Companion(settings).tell]
        self._pid = os.getpid()
        self._owner = this_process()
        self._agreed = False
        self._cadence = Cadence(settings, self.ranks)
        self._devices = Devices()
        self._pool, self._scratch = make_pool(settings)
        self._flight: Flight | None = None
        self._last_step: int | None = None
        self._rate: float | None = None  # bytes per second of the last save
        self._protected: set[str] = set()
        self._resumed: str | None = None
        self._status = Status()
        self._counters, self._counter_file = Counters(), CounterFile("engine")
        self._lock = threading.Lock()
        self._closed = False
        start_where_missing()
        self._fence = Fence(settings, self._pool, self._saving)
        self._fence.note = self._note_fence
        atexit.register(self.close)

    # --- saving ----------------------------------------------------------------------------------------------------

    def due(self, step: int, default_steps: int | None = None) -> bool:
        """Whether the settings want a save after this step. Collective where time decides."""
        return self._cadence.due(step, default_steps, (self._fence.pace.added, self._status.durable_seconds or None))

    def save(self, step: int, write: Callable[[Capture], object], live: Iterable[torch.Tensor] = ()) -> Outcome:
        """Save in the background what `write(capture)` makes the framework's saver write. Collective.

        `live`: tensors, beyond those of the optimizers, that change in an optimizer step and nowhere else. Nothing is
        raised but what ends the process.
        """
        outcome = self._agree(step)
        if outcome is not Outcome.STARTED:
            self._count_skip(step, outcome)
            return outcome
        started = time.monotonic()
        try:
            self._start(step, write, tuple(live))
        except Exception as error:  # the training goes on without this save
            self._count_failure(step, error)
            return Outcome.FAILED
        self._change(call_seconds=time.monotonic() - started)
        return Outcome.STARTED

    def _agree(self, step: int) -> Outcome:
        """Decide with all ranks: a saver's collectives must be entered by all of them or by none."""
        if step == self._last_step:
            return Outcome.DUPLICATE
        if self.settings.back_pressure == "wait":
            self.wait(self.settings.commit_timeout)
        order = (Outcome.DISABLED, Outcome.BUSY, Outcome.DUPLICATE, Outcome.STARTED)
        mine = order.index(self._ready(step))
        return order[self.ranks.minimum(mine)]

    def _ready(self, step: int) -> Outcome:
        if self._status.disabled or self._closed:
            return Outcome.DISABLED
        if self._flight is not None and not self._flight.done:
            return Outcome.BUSY
        if self.ranks.rank == 0 and (self.root / checkpoint_name(step) / MARKER).exists() and not self._outdated(step):
            return Outcome.DUPLICATE
        return Outcome.STARTED

    def _outdated(self, step: int) -> bool:
        """Whether a committed checkpoint of this step is not of this training's past, and nobody alive wrote it.

        Then the training began anew, or went back behind it, and a crash must not resume from the old one.
        """
        before = read_owner(self.root / checkpoint_name(step) / MANIFEST, "owner")
        resumed = step_of(self._resumed) if self._resumed else None
        return before is not None and is_gone(before, self._owner) and (resumed is None or resumed < step)

    def _start(self, step: int, write: Callable[[Capture], object], live: tuple[torch.Tensor, ...]) -> None:
        self._agree_on_run()
        self._last_step = step
        plan = self._plan(step)
        lazy = self._fence.copies_late()
        self._fence.pace.begin(lazy=lazy)
        capture = None
        try:
            self._make_directories(plan)
            capture = Capture(plan.run_dir, plan.directory, self._pool, self._devices, lambda: self._fence.live(live))
            write(capture)
            images, chunks = capture.finish(debug=self.settings.debug_hash)
        except BaseException as error:
            if capture is not None:
                capture.discard()
            give_up(plan, error if isinstance(error, Exception) else AbandonedError(repr(error)))
            raise
        self._devices.follow()
        snapshot = Snapshot(self._pool, chunks)
        flight = Flight(plan, images, snapshot, self._scratch, (self._finished, self._tell))
        self._change(in_flight_step=step, lazy=lazy, bytes=snapshot.bytes, blocking_bytes=capture.blocking_bytes)
        self._change(started=self._status.started + 1)
        self._flight = flight
        snapshot.hold_devices()
        self._fence.watch(snapshot, f"checkpoint of step {step}")
        flight.start()
        self._fence.forget_optimizers()
        self._cadence.saved()
        if not lazy:
            self._fence.settle()

    def _agree_on_run(self) -> None:
        """Make rank 0's run and attempt everybody's, and clear away what earlier attempts left."""
        if self._agreed:
            return
        told = self.ranks.broadcast(json.dumps([self._owner.run, self._owner.attempt]))
        run, attempt = json.loads(told)
        self._owner = dataclasses.replace(self._owner, run=run, attempt=attempt)
        if self.ranks.rank == 0:
            for path in retention.remove_leftovers(self.root, self._owner):
                log.info("%s was left by another process that may still run; it stays", path)
        self._agreed = True

    def _plan(self, step: int) -> Plan:
        save = Save(step, self._owner.run, self._owner.attempt, self.ranks.world_size)
        run_dir = self.root / temporary_name(step, self._owner.attempt)
        replace = self.ranks.rank == 0 and self._outdated(step)
        return Plan(save, self.ranks.rank, run_dir, self.settings, replace)

    def _make_directories(self, plan: Plan) -> None:
        made_root = not self.root.exists()
        plan.directory.mkdir(parents=True, exist_ok=True)
        if self.ranks.rank == 0:
            (plan.run_dir / OWNER).write_bytes(encode(self._owner.encoded()))
        if made_root:
            sync_directory(self.root.parent)

    # --- the fence -------------------------------------------------------------------------------------------------

    def fence(self) -> None:
        """Return when no live tensor is read any more. Call it before anything but an optimizer edits them."""
        self._fence.settle()

    def _note_fence(self, settled: Settled) -> None:
        self._change(fence_seconds=settled.seconds, starved_seconds=settled.starved, pool_bytes=self._pool.peak)

    def _saving(self) -> bool:
        return self._flight is not None and not self._flight.done

    # --- what became of it -----------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """Return the counters as they are now."""
        return self._status

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether nothing is in flight, after `timeout` seconds at the latest."""
        flight = self._flight
        return flight is None or flight.wait(timeout)

    def close(self) -> None:
        """Finish what is in flight, within `drain_timeout`, and let go of the optimizer. Safe to call again."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        atexit.unregister(self.close)
        self.fence()
        if not self.wait(self.settings.drain_timeout):
            log.error("the checkpoint in flight was not durable after %.0f s; given up", self.settings.drain_timeout)
            self._give_up("the process is leaving")
        self._fence.remove()
        if self.wait(0):
            self._pool.close()

    def estimate(self, extra_bytes: int = 0) -> float | None:
        """Return the seconds until what is in flight, and `extra_bytes` more, are durable; None if unknown."""
        flight = self._flight
        left = 0.0 if flight is None or flight.done else flight.seconds_left(self._rate)
        if left is None or (extra_bytes and not self._rate):
            return None
        return left + (extra_bytes / self._rate if self._rate else 0.0)

    def finish_within(self, seconds: float) -> bool:
        """Finish the save in flight if it is likely to fit into the time, else give it up. True: nothing was lost."""
        expected = self.estimate()
        if (expected is None or expected <= seconds) and self.wait(seconds):
            return True
        self._give_up(f"it does not fit into the {seconds:.1f} s that are left")
        return False

    def resumed_from(self, path: Path | str) -> None:
        """Never delete that checkpoint; belong to its run if that is certainly over."""
        directory = Path(path)
        before = read_owner(directory / MANIFEST, "owner")
        if before is not None and is_gone(before, self._owner):
            self._owner = dataclasses.replace(self._owner, run=before.run)
        self._resumed = directory.name

    def protect(self, names: Iterable[str]) -> None:
        """Never delete the checkpoints of these directory names."""
        self._protected = set(names)

    def _give_up(self, reason: str) -> None:
        flight = self._flight
        if flight is not None and not flight.done:
            flight.abandon(reason)

    def _finished(self, flight: Flight) -> None:
        """Count what became of a save and delete what it supersedes: in the flight's own thread."""
        step = flight.plan.save.step
        self._change(in_flight_step=None, pool_bytes=self._pool.peak)
        if isinstance(flight.error, AlreadyThereError):
            self._change(skipped=self._status.skipped + 1, failures_in_a_row=0)
            self._count(Counters(skipped=1))
            log.warning("checkpoint of step %d skipped: %s", step, flight.error)
            return
        if flight.error is not None:
            self._count_failure(step, flight.error)
            return
        if flight.seconds:
            self._rate = flight.snapshot.bytes / flight.seconds
        self._change(
            committed=self._status.committed + 1,
            failures_in_a_row=0,
            last_committed_step=step,
            durable_seconds=flight.seconds,
        )
        self._count(Counters(committed=1, seconds=flight.seconds or 0.0, bytes=flight.snapshot.bytes))
        log.info("checkpoint of step %d committed after %.2f s", step, flight.seconds)
        if flight.committed is not None:
            kept = self._protected | ({self._resumed} if self._resumed else set())
            retention.prune(self.root, step, self._owner, self.settings, kept)

    def _tell(self, path: Path) -> None:
        for tell in self.on_commit:
            try:
                tell(path)
            except Exception:
                log.exception("after the commit of %s", path)

    def _count_skip(self, step: int, outcome: Outcome) -> None:
        if outcome is Outcome.BUSY:
            self._change(skipped=self._status.skipped + 1)
            self._count(Counters(skipped=1))
            log.warning("checkpoint of step %d skipped: the last one is still being written", step)

    def _count(self, more: Counters) -> None:
        """For the node's metrics. A checkpoint is one, however many ranks write it; each rank's bytes are its own."""
        if self.ranks.rank != 0:
            more = Counters(bytes=more.bytes)
        with self._lock:
            self._counters = self._counters.plus(more)
            self._counter_file.write(self._counters)

    def _count_failure(self, step: int, error: Exception) -> None:
        self._count(Counters(failed=1))
        in_a_row = self._status.failures_in_a_row + 1
        self._change(failed=self._status.failed + 1, failures_in_a_row=in_a_row, last_error=str(error) or repr(error))
        log.error("checkpoint of step %d failed: %s", step, str(error) or repr(error), exc_info=_if_unexpected(error))
        if in_a_row >= self.settings.max_failures and not self._status.disabled:
            self._change(disabled=True)
            log.critical(
                "CONCURRENT CHECKPOINTS ARE DISABLED after %d failures in a row; the training goes on without them. "
                "The last reason: %s",
                in_a_row,
                error,
            )

    def _change(self, **values: object) -> None:
        with self._lock:
            self._status = dataclasses.replace(self._status, **values)  # type: ignore[arg-type]


def _if_unexpected(error: Exception) -> Exception | None:
    from .errors import EngineError  # noqa: PLC0415

    return None if isinstance(error, EngineError | OSError) else error

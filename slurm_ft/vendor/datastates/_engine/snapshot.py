"""One save on its way from the training's memory to the disk, chunk by chunk.

Workers copy chunks from live memory into a buffer of their own, hash and write them. The fence does not wait for them:
it copies what is still live into the pool itself, at memory speed, and takes over what a worker is just reading; the
worker then throws its copy away. So the time that an optimizer step can lose is bounded by the memory, not by the disk,
as long as the pool has room. Without room it waits for the disk, and says so.

A chunk's life: LIVE -> READING -> SAFE -> WRITTEN (a worker copied it in time) or LIVE -> HELD -> SAFE -> WRITTEN (the
pool holds its content). Only what is LIVE or READING can be torn by a change of the training's memory.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from .device import latest
from .errors import AbandonedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .device import Copies
    from .image import FileImage
    from .pool import Buffer, Pool

# How long the fence lets a worker finish the copy that it is making, before it makes its own. A copy takes 1-2 ms.
TAKE_OVER_AFTER = 0.02

# A wait for a buffer looks again after this (seconds), to notice its own time limit.
LOOK_AGAIN = 0.5


class ChunkState(Enum):
    """Where a chunk's content is."""

    LIVE = "live"
    READING = "reading"
    HELD = "held"
    SAFE = "safe"
    WRITTEN = "written"


@dataclass(eq=False, slots=True)
class Chunk:
    """A chunk of a file. `changing`: part of it may change at the next optimizer step."""

    image: FileImage
    index: int
    length: int
    changing: bool
    state: ChunkState = ChunkState.LIVE
    buffer: Buffer | None = None
    copies: Copies | None = None  # from GPUs into the buffer
    expected: str | None = None  # the digest at capture, in debug mode
    digest: str = ""

    def hold(self, buffer: Buffer) -> None:
        """Copy the content into the pool; copies from GPUs are only queued."""
        self.copies = self.image.assemble(self.index, buffer.address)
        self.buffer = buffer


@dataclass(frozen=True, slots=True)
class Settled:
    """What a fence did. `starved`: seconds of it spent waiting for the disk because the pool was full."""

    bytes: int = 0
    seconds: float = 0.0
    starved: float = 0.0


class Snapshot:
    """The chunks of one save, shared by the training thread and the workers."""

    def __init__(self, pool: Pool, chunks: Sequence[Chunk]) -> None:
        self.pool = pool
        self.chunks = tuple(chunks)
        self.bytes = sum(chunk.length for chunk in chunks)
        self.bytes_written = 0
        self._news = threading.Condition()
        live = [chunk for chunk in chunks if chunk.state is ChunkState.LIVE]
        self._changing = deque(chunk for chunk in live if chunk.changing)
        self._steady = deque(chunk for chunk in live if not chunk.changing)
        self._held = deque(chunk for chunk in chunks if chunk.state is ChunkState.HELD)
        self._reading: set[Chunk] = set()
        self._unwritten = len(chunks)
        self._starved = False
        self._failure: Exception | None = None
        self._queued: list[Copies] = []  # from GPUs, which the training's streams do not wait for yet

    # --- the training's thread -------------------------------------------------------------------------------------

    def hold_devices(self) -> None:
        """Queue the copies of GPU memory as far as the pool has room; nothing waits here. Before any worker starts."""
        live, self._changing = self._changing, deque()
        for chunk in live:
            on_device = any(region.device for region in chunk.image.regions(chunk.index))
            buffer = self.pool.take() if on_device else None
            if buffer is not None:
                self._hold(chunk, buffer)
            else:
                self._changing.append(chunk)

    def settle(self, timeout: float) -> Settled:
        """Return when no live byte that can change will be read any more. Costs nothing when that is so already.

        After `timeout` seconds with a full pool and a disk that does not answer the save is given up
        (AbandonedError), so that training can go on.
        """
        started = time.monotonic()
        size, starved = 0, 0.0
        while (claim := self._claim_last()) is not None:
            chunk, buffer = claim
            if buffer is None:
                starved += self._wait_for_room(started + timeout)
                continue
            self._hold(chunk, buffer)
            size += chunk.length
        size += self._take_over(started + timeout)
        latest(self._queued).hold_training()
        self._queued.clear()
        return Settled(size, time.monotonic() - started, starved)

    def _claim_last(self) -> tuple[Chunk, Buffer | None] | None:
        """Take the last live chunk (workers start at the other end) with a buffer for it; it stays without one."""
        with self._news:
            if self._failure is not None or not self._changing:
                return None
            buffer = self.pool.take()
            return (self._changing.pop() if buffer is not None else self._changing[-1]), buffer

    def _hold(self, chunk: Chunk, buffer: Buffer) -> None:
        chunk.hold(buffer)
        if chunk.copies is not None:
            self._queued.append(chunk.copies)
        with self._news:
            chunk.state = ChunkState.HELD
            self._held.append(chunk)
            self._news.notify_all()

    def _wait_for_room(self, deadline: float) -> float:
        started = time.monotonic()
        if started > deadline:
            raise self.fail(AbandonedError("the disk did not take a checkpoint in time and the host pool is full"))
        with self._news:
            self._starved = True
            self._news.notify_all()
            self._news.wait(LOOK_AGAIN)
            self._starved = False
        return time.monotonic() - started

    def _take_over(self, deadline: float) -> int:
        """Copy what workers are reading just now, unless they finish by themselves at once."""
        size = 0
        for chunk in self._still_reading():
            while (buffer := self.pool.take()) is None:
                if chunk.state is not ChunkState.READING:
                    break
                self._wait_for_room(deadline)
            if buffer is None:
                continue
            copies = chunk.image.assemble(chunk.index, buffer.address)
            if copies is not None:
                self._queued.append(copies)
            size += self._replace(chunk, buffer, copies)
        return size

    def _still_reading(self) -> list[Chunk]:
        until = time.monotonic() + TAKE_OVER_AFTER
        with self._news:
            while reading := [chunk for chunk in self._reading if chunk.changing]:
                if not self._news.wait(until - time.monotonic()) and time.monotonic() >= until:
                    return reading
            return []

    def _replace(self, chunk: Chunk, buffer: Buffer, copies: Copies | None) -> int:
        with self._news:
            if chunk.state is not ChunkState.READING:  # the worker was faster
                self._give_back(buffer, copies)
                return 0
            self._reading.discard(chunk)
            chunk.buffer, chunk.copies, chunk.state = buffer, copies, ChunkState.HELD
            self._held.append(chunk)
            self._news.notify_all()
            return chunk.length

    # --- the workers -----------------------------------------------------------------------------------------------

    def next(self) -> tuple[Chunk, Buffer | None] | None:
        """Return the next chunk to write; None when there is nothing more for this worker.

        With a buffer the content is in it; without one the worker reads it from live memory, and asks `copied` then.
        """
        with self._news:
            while self._unwritten and self._failure is None:
                chunk = self._pick()
                if chunk is not None:
                    return chunk, chunk.buffer
                self._news.wait()
            return None

    def _pick(self) -> Chunk | None:
        held_first = (self._held, self._changing, self._steady)
        live_first = (self._changing, self._held, self._steady)
        queue = next((queue for queue in (held_first if self._starved else live_first) if queue), None)
        if queue is None:
            return None
        chunk = queue.popleft()
        if chunk.state is ChunkState.HELD:
            chunk.state = ChunkState.SAFE
        else:
            chunk.state = ChunkState.READING
            self._reading.add(chunk)
        return chunk

    def copied(self, chunk: Chunk) -> bool:
        """Say that a READING chunk's content is in the worker's buffer. False: the fence took it over, drop it."""
        with self._news:
            if chunk.state is not ChunkState.READING:
                return False
            self._reading.discard(chunk)
            chunk.state = ChunkState.SAFE
            self._news.notify_all()
            return True

    def written(self, chunk: Chunk) -> None:
        """Say that a chunk is on its way to the disk and its buffer is free again."""
        with self._news:
            chunk.state = ChunkState.WRITTEN
            self._release(chunk)
            self._unwritten -= 1
            self.bytes_written += chunk.length
            self._news.notify_all()

    # --- both ------------------------------------------------------------------------------------------------------

    def fail(self, error: Exception) -> Exception:
        """Give the save up; the first reason counts. Returns the error."""
        with self._news:
            self._failure = self._failure or error
            for chunk in self._held:
                self._release(chunk)
            self._held.clear()
            self._changing.clear()
            self._steady.clear()
            self._news.notify_all()
        return error

    def wait_written(self) -> None:
        """Return when every chunk is written. Raises what made the save fail."""
        with self._news:
            while self._unwritten and self._failure is None:
                self._news.wait()
            if self._failure is not None:
                raise self._failure

    @property
    def failed(self) -> bool:
        """Whether the save was given up."""
        return self._failure is not None

    @property
    def reads_live_memory(self) -> bool:
        """Whether a change of the training's memory could still tear a chunk."""
        return bool(self._changing or self._reading or self._queued)

    def _release(self, chunk: Chunk) -> None:
        if chunk.buffer is not None:
            self._give_back(chunk.buffer, chunk.copies)
            chunk.buffer = None

    def _give_back(self, buffer: Buffer, copies: Copies | None) -> None:
        """Return a buffer to the pool: not while a GPU still writes into it, and never if that cannot be known."""
        if copies is not None:
            try:
                copies.wait()
            except RuntimeError:  # the GPU is lost
                return
        self.pool.give_back([buffer])

"""What one rank's part of a checkpoint will contain, collected while the framework's own saver runs.

Three kinds of files carry the bulk and are taken over here; everything else the saver writes into the temporary
directory itself. A path may come twice (DeepSpeed ZeRO-3 saves twice): the last content counts, so nothing is written
before the saver has returned. A file that the saver removes again is dropped.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import dcp, safetensors_file, skeleton
from .device import latest
from .errors import EngineError, UnknownMemoryError
from .hashing import CHUNK_BYTES, chunk_digest
from .image import SMALL, FileImage, Region, private_copy
from .pool import Slab
from .snapshot import Chunk, ChunkState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch.distributed.checkpoint.filesystem import FileSystemWriter

    from .device import Devices
    from .pool import Pool


class Capture:
    """The files of one save, on one rank. Made by `Engine.save` and handed to the framework's saver."""

    def __init__(
        self, run_dir: Path, directory: Path, pool: Pool, devices: Devices, live: Callable[[], frozenset[int]]
    ) -> None:
        self.run_dir = run_dir  # what a framework takes for its output directory
        self.directory = directory  # the checkpoint in it
        self.blocking_bytes = 0  # written by the caller itself, because nothing else was possible
        self._pool = pool
        self._devices = devices
        self._find_live = live
        self._live = live()
        self._regions: dict[int, Region] = {}
        self._storages: list[torch.UntypedStorage] = []  # while it lives, no other storage has its identity
        self._files: dict[Path, _File] = {}

    def owns(self, path: str | os.PathLike[str]) -> bool:
        """Whether a path belongs to this checkpoint."""
        return self.directory in _absolute(path).parents

    def torch_save(self, obj: object, path: str | os.PathLike[str], **options: Any) -> None:
        """Save as `torch.save(obj, path, **options)` does; the tensors' bytes follow later."""
        import torch  # noqa: PLC0415

        target = _absolute(path)
        if options.get("_use_new_zipfile_serialization", True) and skeleton.works():
            with contextlib.suppress(UnknownMemoryError):
                if self.add(skeleton.torch_file_image(obj, target, options, self.region)):
                    return
        self._blocking(target, lambda: torch.save(obj, target, **options))

    def save_safetensors(
        self,
        tensors: Mapping[str, torch.Tensor],
        path: str | os.PathLike[str],
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Save as `safetensors.torch.save_file(tensors, path, metadata)` does; the bytes follow later."""
        target = _absolute(path)
        if safetensors_file.can_save(tensors):
            with contextlib.suppress(UnknownMemoryError):
                if self.add(safetensors_file.safetensors_image(tensors, target, metadata, self.region)):
                    return
        from safetensors.torch import save_file  # noqa: PLC0415 - only where the script itself uses it

        self._blocking(target, lambda: save_file(dict(tensors), target, dict(metadata) if metadata else None))

    def dcp_writer(self, path: str | os.PathLike[str]) -> FileSystemWriter:
        """Return a storage writer for `torch.distributed.checkpoint.save`; the bytes follow later."""
        return dcp.make_writer(self, path)

    def region(self, storage: torch.UntypedStorage) -> Region:
        """Return the region of a storage's bytes. Raises UnknownMemoryError."""
        key = int(storage._cdata)
        if key not in self._regions:
            self._regions[key] = self._new_region(storage, key)
            self._storages.append(storage)
        return self._regions[key]

    def add(self, image: FileImage) -> bool:
        """Take charge of a file; an earlier one of that path is replaced.

        False: the pool has no room for what must be copied at once; write the file yourself.
        """
        self._drop(image.path)
        chunks = [Chunk(image, i, image.chunk_length(i), self._changing(image, i)) for i in range(image.chunk_count)]
        if not self._hold([chunk for chunk in chunks if self._unsafe(chunk)]):
            return False
        image.path.touch()  # savers look whether the file is there; one that they delete again is not written
        self._files[image.path] = _File(image, chunks)
        return True

    def finish(self, *, debug: bool) -> tuple[list[FileImage], list[Chunk]]:
        """Return the files that still exist, and their chunks. Called once the saver has returned.

        Raises EngineError if memory that looked like a parameter's is none and the pool has no room for it.
        """
        for target in [path for path in self._files if not path.exists()]:
            self._drop(target)
        chunks = [chunk for file in self._files.values() for chunk in file.chunks]
        # A saver may have freed and given away what was a parameter's memory: only now it is certain what is live.
        self._live = self._find_live()
        for chunk in chunks:
            chunk.changing = self._changing(chunk.image, chunk.index)
        if not self._hold([chunk for chunk in chunks if chunk.state is ChunkState.LIVE and self._unsafe(chunk)]):
            raise EngineError(
                "the host pool has no room for tensors that are not the optimizer's", "Raise host_cache_size"
            )
        for chunk in chunks if debug else ():
            chunk.expected = _digest_now(chunk)
        for file in self._files.values():
            if file.chunks and all(chunk.state is ChunkState.HELD for chunk in file.chunks):
                file.image.let_go()
        return [file.image for file in self._files.values()], chunks

    def discard(self) -> None:
        """Give everything back."""
        for target in list(self._files):
            self._drop(target)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _blocking(self, target: Path, save: Callable[[], object]) -> None:
        """Let the framework write a file itself, at once. It is hashed and made durable with the small files."""
        self._drop(target)
        save()
        self.blocking_bytes += target.stat().st_size

    def _new_region(self, storage: torch.UntypedStorage, key: int) -> Region:
        size, address = storage.nbytes(), storage.data_ptr()
        if storage.device.type == "cpu":
            if size < SMALL:
                return private_copy(ctypes.string_at(address, size))
            return Region(size, address, storage, private=False, identity=key)
        if storage.device.type == "cuda":
            device = self._devices.of(storage.device)
            return Region(size, address, storage, private=False, identity=key, device=device)
        raise UnknownMemoryError(f"tensors on {storage.device} are not copied in the background")

    def _changing(self, image: FileImage, index: int) -> bool:
        return any(not region.private for region in image.regions(index))

    def _unsafe(self, chunk: Chunk) -> bool:
        """Whether a chunk reads memory that may change before the next optimizer step."""
        regions = chunk.image.regions(chunk.index)
        return any(not region.private and region.identity not in self._live for region in regions)

    def _hold(self, chunks: Sequence[Chunk]) -> bool:
        """Copy the chunks into the pool now. False, and nothing is held, if it has no room."""
        buffers = [buffer for _ in chunks if (buffer := self._pool.take()) is not None]
        if len(buffers) < len(chunks):
            self._pool.give_back(buffers)
            return False
        self._devices.follow()
        for chunk, buffer in zip(chunks, buffers, strict=True):
            chunk.hold(buffer)
            chunk.state = ChunkState.HELD
        latest(chunk.copies for chunk in chunks if chunk.copies is not None).hold_training()
        return True

    def _drop(self, target: Path) -> None:
        file = self._files.pop(target, None)
        if file is None:
            return
        for chunk in file.chunks:
            if chunk.copies is not None:
                chunk.copies.wait()
            if chunk.buffer is not None:
                self._pool.give_back([chunk.buffer])
                chunk.buffer = None


@dataclass(frozen=True, slots=True)
class _File:
    image: FileImage
    chunks: list[Chunk]


def _absolute(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - absolute, but with the user's own links in it


def _digest_now(chunk: Chunk) -> str:
    if chunk.buffer is None:
        chunk_of_memory = Slab(CHUNK_BYTES, 1).buffers[0]
        copies = chunk.image.assemble(chunk.index, chunk_of_memory.address)
        if copies is not None:
            copies.wait()
        return chunk_digest(chunk_of_memory.view[: chunk.length])
    if chunk.copies is not None:
        chunk.copies.wait()
    return chunk_digest(chunk.buffer.view[: chunk.length])

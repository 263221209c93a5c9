"""A writer for torch.distributed.checkpoint whose planning runs in the caller and whose bytes follow later.

`dcp.save` plans with collectives, asks the storage writer for each rank's data, and gathers where everything lies. All
of that stays on the training thread; only `write_data` differs from torch's FileSystemWriter: it says where the bytes
will lie, in the same format, without writing them. So no thread of ours ever needs a collective.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import skeleton
from .errors import UnknownMemoryError
from .image import Extent, FileImage, private_copy

if TYPE_CHECKING:
    import os

    import torch
    from torch.distributed.checkpoint.filesystem import FileSystemWriter

    from .capture import Capture


def make_writer(capture: Capture, path: str | os.PathLike[str]) -> FileSystemWriter:
    """Return a storage writer for `dcp.save(..., storage_writer=)`."""
    from torch.distributed.checkpoint import filesystem  # noqa: PLC0415 - heavy
    from torch.futures import Future  # noqa: PLC0415

    class ConcurrentWriter(filesystem.FileSystemWriter):
        """torch's own writer, but for the data."""

        def write_data(self, plan: Any, planner: Any) -> Future[Any]:
            name = f"{plan.storage_data.prefix}0{filesystem.DEFAULT_SUFFIX}"
            try:
                layout = _Layout(capture, Path(self.path, name))
                results = [_place(layout, item, planner, filesystem) for item in plan.items]
                taken = skeleton.works() and capture.add(layout.image())
            except UnknownMemoryError:
                taken = False
            if not taken:
                return super().write_data(plan, planner)
            future: Future[Any] = Future()
            future.set_result(results)
            return future

    return ConcurrentWriter(path, overwrite=True)


def _place(layout: _Layout, item: Any, planner: Any, filesystem: Any) -> Any:
    """Give one item its place in the file, and return what dcp records of it."""
    data = planner.resolve_data(item)
    start = layout.size
    if item.type is filesystem.WriteItemType.BYTE_IO:
        layout.add_bytes(data.getbuffer())
    else:
        layout.add_tensor(data.detach())
    info = filesystem._StorageInfo(layout.path.name, start, layout.size - start)
    return filesystem.WriteResult(index=item.index, size_in_bytes=layout.size - start, storage_data=info)


class _Layout:
    """One `.distcp` file: a `torch.save` archive for each tensor, one after the other."""

    def __init__(self, capture: Capture, path: Path) -> None:
        self.path = path
        self.size = 0
        self._capture = capture
        self._extents: list[Extent] = []
        self._shells: dict[Any, FileImage] = {}  # layers repeat: their archives differ in the tensor's bytes only

    def add_bytes(self, content: memoryview) -> None:
        """Append bytes as they are now."""
        self._extents.append(Extent(self.size, len(content), private_copy(content)))
        self.size += len(content)

    def add_tensor(self, tensor: torch.Tensor) -> None:
        """Append what `torch.save(tensor.cpu(), stream)` writes, the bytes later."""
        if tensor.nbytes != tensor.untyped_storage().nbytes() and not tensor.is_contiguous():
            tensor = tensor.clone()  # part of something larger: dcp clones those too
        shell = self._shell(tensor)
        for extent in shell.extents:
            if extent.region.private:
                moved = Extent(self.size + extent.offset, extent.length, extent.region, extent.start)
            else:
                region = self._capture.region(tensor.untyped_storage())
                first = int(tensor.storage_offset()) * tensor.itemsize if tensor.is_contiguous() else 0
                moved = Extent(self.size + extent.offset, extent.length, region, first)
            self._extents.append(moved)
        self.size += shell.size

    def image(self) -> FileImage:
        """Return the file."""
        return FileImage(self.path, self.size, self._extents)

    def _shell(self, tensor: torch.Tensor) -> FileImage:
        """Return the archive around a tensor like this one, made from a stand-in whose memory nobody touches."""
        import torch  # noqa: PLC0415

        key = (tensor.dtype, tensor.shape, tensor.stride(), tensor.requires_grad)
        if key not in self._shells:
            stand_in = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
            with tempfile.TemporaryDirectory(prefix="datastates-") as name:
                archive = Path(name, "archive")  # the inner name that torch gives a stream
                self._shells[key] = skeleton.torch_file_image(stand_in, archive, {}, _placeholder)
        return self._shells[key]


def _placeholder(storage: torch.UntypedStorage) -> Any:
    from .image import Region  # noqa: PLC0415

    return Region(storage.nbytes(), 0, None, private=False)

"""A `torch.save` file without its tensors' bytes: pickled at once, the bulk filled in later.

`torch.serialization.skip_data` makes torch write the whole archive, with room for each storage. We keep what it wrote
and remember which storage belongs where. The pickle is made at capture, so every Python object in the state, whatever
its class, is saved as it is now. Both parts of torch that this touches are young: `works()` tries them once.

Every entry's CRC field is set to zero, which zip readers of checkpoints take for "no checksum": torch computes none for
skipped data, and one for the rest. The manifest's digests cover the whole file instead.
"""

from __future__ import annotations

import functools
import os
import pickle
import shutil
import struct
import tempfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .image import Extent, FileImage, private_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from .image import Region

# A sparse file of the whole size costs nothing in memory here, and no write on the checkpoint's own disk.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a private directory is made in it

_NO_CRC = bytes(4)
_HAS_DESCRIPTOR = 0x08  # bit 3 of an entry's flags
_DESCRIPTOR = b"PK\x07\x08"  # the signature of the record that follows the data then


def torch_file_image(
    obj: object, path: Path, options: Mapping[str, Any], region_of: Callable[[torch.UntypedStorage], Region]
) -> FileImage:
    """Return what `torch.save(obj, path, **options)` would write; `region_of` takes charge of a storage's bytes."""
    directory = Path(tempfile.mkdtemp(prefix="datastates-", dir=SHARED_MEMORY if _has_shared_memory() else path.parent))
    try:
        sparse = directory / path.name  # the archive's inner names come from the file's name
        storages = _save_skeleton(obj, sparse, dict(options))
        return _image(sparse, path, storages, region_of)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@functools.cache
def works() -> bool:
    """Whether this torch can do it: writes a small file both ways and compares what is loaded."""
    import torch  # noqa: PLC0415

    values: dict[str, Any] = {"a": torch.arange(40_000), "b": [torch.ones(3), 1.5], "c": torch.empty(0)}
    with tempfile.TemporaryDirectory(prefix="datastates-") as name:
        path = Path(name, "test.pt")
        try:
            image = torch_file_image(values, path, {}, lambda s: private_copy(_bytes_of(s)))
            content = bytearray(image.size)
            for extent in image.extents:
                source = memoryview(extent.region.keep).cast("B")
                content[extent.offset : extent.offset + extent.length] = source[extent.start :][: extent.length]
            path.write_bytes(content)
            loaded = torch.load(path, weights_only=True)
        except Exception:  # any failure means the same: use the plain way
            return False
    return bool(torch.equal(loaded["a"], values["a"]) and torch.equal(loaded["b"][0], torch.ones(3)))


def _bytes_of(storage: torch.UntypedStorage) -> bytes:
    import torch  # noqa: PLC0415

    return bytes(torch.empty(0, dtype=torch.uint8).set_(storage).tolist())


def _has_shared_memory() -> bool:
    return os.access(SHARED_MEMORY, os.W_OK | os.X_OK)


def _save_skeleton(obj: object, path: Path, options: dict[str, Any]) -> dict[str, torch.UntypedStorage]:
    """Write the archive without data; return the storages by their key in it."""
    import torch  # noqa: PLC0415

    module = options.pop("pickle_module", pickle)
    storages: dict[str, torch.UntypedStorage] = {}

    class Recorder(module.Pickler):  # type: ignore[misc, name-defined]
        """torch derives its own pickler from this one; what that returns for a storage passes through here."""

        def __init_subclass__(cls) -> None:
            name_storage = cls.persistent_id

            def persistent_id(self: object, value: Any) -> Any:
                named = name_storage(self, value)
                if named is not None:
                    storages[named[2]] = getattr(value, "_untyped_storage", value)
                return named

            cls.persistent_id = persistent_id

    proxy = SimpleNamespace(**{**vars(module), "Pickler": Recorder})
    with torch.serialization.skip_data():
        torch.save(obj, path, pickle_module=proxy, **options)
    return storages


def _image(
    sparse: Path,
    path: Path,
    storages: Mapping[str, torch.UntypedStorage],
    region_of: Callable[[torch.UntypedStorage], Region],
) -> FileImage:
    size = sparse.stat().st_size
    with sparse.open("r+b", buffering=0) as file:
        with zipfile.ZipFile(file) as archive:
            records, directory = archive.infolist(), archive.start_dir
            _clear_crcs(file.fileno(), records, directory)
        spans = []
        for record in records:
            folder, _, key = record.filename.rpartition("/")
            if folder.endswith("/data") and key in storages and record.file_size:
                spans.append((_data_offset(file.fileno(), record), record.file_size, storages[key]))
        gaps = _gaps(size, [(start, length) for start, length, _ in spans])
        shell = b"".join(os.pread(file.fileno(), length, start) for start, length in gaps)
    literal, at = private_copy(shell), 0
    extents = [Extent(start, length, region_of(storage)) for start, length, storage in spans]
    for start, length in gaps:
        extents.append(Extent(start, length, literal, at))
        at += length
    return FileImage(path, size, extents)


def _clear_crcs(descriptor: int, records: list[zipfile.ZipInfo], directory: int) -> None:
    """Zero the CRC field in each of the three places where zip keeps it (APPNOTE 4.3.7, 4.3.9 and 4.3.12)."""
    entry = directory
    for record in records:
        os.pwrite(descriptor, _NO_CRC, record.header_offset + 14)
        after = _data_offset(descriptor, record) + record.compress_size
        if record.flag_bits & _HAS_DESCRIPTOR and os.pread(descriptor, 4, after) == _DESCRIPTOR:
            os.pwrite(descriptor, _NO_CRC, after + 4)
        os.pwrite(descriptor, _NO_CRC, entry + 16)
        lengths = struct.unpack("<3H", os.pread(descriptor, 6, entry + 28))  # name, extra, comment
        entry += 46 + sum(lengths)


def _data_offset(descriptor: int, record: zipfile.ZipInfo) -> int:
    lengths = struct.unpack("<2H", os.pread(descriptor, 4, record.header_offset + 26))  # name, extra
    return int(record.header_offset + 30 + sum(lengths))


def _gaps(size: int, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what lies between the spans, as start and length."""
    gaps, at = [], 0
    for start, length in sorted(spans):
        gaps.append((at, start - at))
        at = start + length
    return [gap for gap in [*gaps, (at, size - at)] if gap[1]]

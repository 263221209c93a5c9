"""Files of `torch.save`: a zip archive with the object tree in `data.pkl` and one record per storage.

`torch.save` writes a CRC-32 for each record; `torch.load` does not check them (pytorch #28858, #126952). So a flipped
bit or a hole in a tensor, which torch would load without a word, is found here at the deep level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..finding import Finding, Level, corrupt, note
from . import stub_pickle
from .model_tensors import model_tensors
from .source import Checked, DamagedError, Span, Values
from .zip_directory import Archive, Record, data_offset, read_archive

if TYPE_CHECKING:
    from .source import Source

NO_CHECKSUMS = "saved without checksums"


def check_torch_zip(source: Source, level: Level, start: int = 0, length: int | None = None) -> Checked:
    """Judge an archive, which may be a part of a file."""
    try:
        archive = read_archive(source, start, length)
        if archive.record("data.pkl") is None:
            return Checked((corrupt("a zip archive, but without the data.pkl of torch.save"),))
        findings = () if archive.has_checksums else (note(NO_CHECKSUMS),)
        if level is Level.QUICK:
            return Checked(findings)
        return _look_inside(source, archive, level, findings)
    except DamagedError as error:
        return Checked((error.finding,))


def read_tree(source: Source, archive: Archive) -> Any:
    """Return the object tree of the archive's `data.pkl`. Raises OpaqueError, DamagedError."""
    record = archive.record("data.pkl")
    if record is None or record.size > stub_pickle.MOST_PICKLE_BYTES:
        raise stub_pickle.OpaqueError("its pickle is too large to follow")
    return stub_pickle.load(source.at(data_offset(source, record), record.size))


def _look_inside(source: Source, archive: Archive, level: Level, findings: tuple[Finding, ...]) -> Checked:
    places = {record.name: data_offset(source, record) for record in archive.records}
    try:
        tree = read_tree(source, archive)
    except stub_pickle.OpaqueError:  # not damage: the checksums still tell
        tree = None
    tensors = model_tensors(tree)
    missing = _missing_storage(archive, tensors)
    if missing:
        return Checked((*findings, corrupt(missing)))
    if level is not Level.DEEP:
        return Checked(findings)
    values = {tensor.storage.key: (name, tensor.dtype) for name, tensor in tensors.items()}
    spans = (_span(archive, record, places[record.name], values) for record in archive.records if record.size)
    return Checked(findings, tuple(spans))


def _missing_storage(archive: Archive, tensors: dict[str, stub_pickle.TensorStub]) -> str:
    """Name the first tensor of the model whose record is missing or too short."""
    sizes = {record.name.rpartition("/data/")[2]: record.size for record in archive.records}
    for name, tensor in tensors.items():
        storage = tensor.storage
        wanted = storage.numel * stub_pickle.ITEM_BYTES.get(storage.dtype, 0)
        if sizes.get(storage.key, -1) < wanted:
            return f"the bytes of tensor {name} are missing"
    return ""


def _span(archive: Archive, record: Record, place: int, tensors: dict[str, tuple[str, str]]) -> Span:
    name, dtype = tensors.get(record.name.rpartition("/data/")[2], ("", ""))
    values = (Values(place, record.size, dtype, name),) if dtype else ()
    crc = record.crc if archive.has_checksums else None
    return Span(place, record.size, f"record {record.name}", crc=crc, values=values)

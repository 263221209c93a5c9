"""MindSpore's `.ckpt`: protobuf messages, one parameter each, simply written one after the other.

Protobuf has no end mark, so a file that was cut between two parameters loads without an error, with fewer of them; one
that was cut within a parameter does not load. A checksum over all of it stands at the end if `crc_check` was set.
Format: mindspore/train/checkpoint.proto, mindspore/train/serialization.py (`_exec_save`, `_parse_ckpt_proto`).

    Checkpoint { repeated Value value = 1 }        Value { tag = 1, TensorProto tensor = 2, MapTensorProto = 3 }
    TensorProto { repeated int64 dims = 1, string tensor_type = 2, bytes tensor_content = 3 }
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UnreadableCheckpointError
from ..finding import Level, corrupt, incomplete, note
from .source import Checked, DamagedError, Span, Values, opened
from .stub_pickle import ITEM_BYTES
from .torch_file import check_torch_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from .source import Source

FIRST_BYTE = b"\x0a"  # field 1, with a length
ENCRYPTED = bytes.fromhex("d85e3a7f")  # mindspore/train/_utils: MAGIC_NUMBER
TRAILER = b"crc_num"
TRAILER_BYTES = len(TRAILER) + 10  # and the checksum, big-endian
HEAD_BYTES = 4096  # of a parameter: its name, shape and type; the rest is its numbers
MOST_PARAMETERS = 1_000_000
DTYPES = {
    "Float64": "F64", "Float32": "F32", "Float16": "F16", "BFloat16": "BF16", "Int64": "I64", "Int32": "I32",
    "Int16": "I16", "Int8": "I8", "UInt8": "U8", "UInt16": "U16", "UInt32": "U32", "UInt64": "U64", "Bool": "BOOL",
}  # fmt: skip
VARINT, BYTES = 0, 2  # protobuf's wire types that the format uses


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter, or a slice of a large one. `offset` and `length` are those of its numbers in the file."""

    name: str
    dtype: str  # safetensors' names; "" for one that we do not know
    shape: tuple[int, ...]
    offset: int
    length: int


def check_ckpt_file(source: Source, level: Level) -> Checked:
    """Judge a `.ckpt` file, which is MindSpore's ending and Lightning's: torch wrote the latter."""
    start = source.at(0, 4)
    if start == ENCRYPTED:
        return Checked((note("encrypted by MindSpore: it cannot be looked into"),))
    if start[:1] != FIRST_BYTE:
        return check_torch_file(source, level)
    try:
        parameters = read_parameters(source)
    except DamagedError as error:
        return Checked((error.finding,))
    return Checked(spans=tuple(_spans(source, parameters)) if level is Level.DEEP else ())


def parameters_of(path: Path) -> tuple[Parameter, ...]:
    """Return the parameters of a file; none if it is damaged. Raises UnreadableCheckpointError."""
    try:
        with opened(path, path.name) as source:
            return read_parameters(source) if source.at(0, 1) == FIRST_BYTE else ()
    except (DamagedError, FileNotFoundError, IsADirectoryError):
        return ()
    except OSError as error:
        raise UnreadableCheckpointError(path, error) from error


def read_integer(path: Path, parameters: Sequence[Parameter], name: str) -> int | None:
    """Return a counter that is stored as a parameter, such as `epoch_num`. Raises UnreadableCheckpointError."""
    found = next((one for one in parameters if one.name == name and one.dtype in ("I32", "I64")), None)
    if found is None or found.length != ITEM_BYTES[found.dtype]:
        return None
    try:
        with opened(path, path.name) as source:
            return int.from_bytes(source.at(found.offset, found.length), "little", signed=True)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableCheckpointError(path, error) from error


def read_parameters(source: Source) -> tuple[Parameter, ...]:
    """Return all parameters, from their heads alone. Raises DamagedError."""
    found: list[Parameter] = []
    place, end = 0, _end(source)
    while place < end:
        body, length = _field(source.at(place, 16), place, 1)
        if body + length > end:
            raise DamagedError(incomplete(f"truncated: parameter {len(found) + 1} goes on behind its end"))
        found.append(_parameter(source.at(body, min(length, HEAD_BYTES)), body, length))
        place = body + length
        if len(found) > MOST_PARAMETERS:
            raise DamagedError(corrupt("more parameters than a checkpoint has"))
    if not found:
        raise DamagedError(corrupt("no parameter in it"))
    _compare(found)
    return tuple(found)


def _end(source: Source) -> int:
    has_trailer = source.at(source.size - TRAILER_BYTES, len(TRAILER)) == TRAILER
    return source.size - TRAILER_BYTES if has_trailer else source.size


def _field(head: bytes, place: int, number: int) -> tuple[int, int]:
    """Return where the content of a field with a length begins, and how long it is. Raises DamagedError."""
    if head[:1] != bytes([number << 3 | BYTES]):
        raise DamagedError(corrupt(f"no MindSpore parameter begins at byte {place}"))
    length, used = _varint(head, 1)
    return place + used, length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(10):
        if at + shift >= len(content):
            raise DamagedError(incomplete("truncated within a parameter's head"))
        byte = content[at + shift]
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    raise DamagedError(corrupt("a number in it is too large"))


def _parameter(head: bytes, start: int, length: int) -> Parameter:
    """Parse a Value message: name, then the tensor. Anything else, such as a map, counts as bytes."""
    at, size = _field(head, 0, 1)
    name = head[at : at + size].decode("utf-8", "replace")
    at += size
    if head[at : at + 1] != bytes([2 << 3 | BYTES]):
        return Parameter(name, "", (), start + at, length - at)
    size, at = _varint(head, at + 1)
    if at + size > length:
        raise DamagedError(corrupt(f"parameter {name}: it is longer than its message"))
    return _tensor(name, head, at, start)


def _tensor(name: str, head: bytes, at: int, start: int) -> Parameter:
    dims: list[int] = []
    dtype = ""
    while at < len(head):
        key, at = head[at], at + 1
        value, at = _varint(head, at)
        if key == 1 << 3 | VARINT:
            dims.append(value)
        elif key == 1 << 3 | BYTES:
            dims.extend(_packed(head[at : at + value]))
            at += value
        elif key == 2 << 3 | BYTES:
            dtype = DTYPES.get(head[at : at + value].decode("utf-8", "replace"), "")
            at += value
        elif key == 3 << 3 | BYTES:
            return Parameter(name, dtype, tuple(dims), start + at, value)
        else:
            break
    raise DamagedError(corrupt(f"parameter {name}: it has no numbers"))


def _packed(content: bytes) -> Iterator[int]:
    at = 0
    while at < len(content):
        value, at = _varint(content, at)
        yield value


def _compare(parameters: Sequence[Parameter]) -> None:
    """The slices of a parameter have to make up its shape."""
    bytes_of: dict[str, int] = {}
    for one in parameters:
        bytes_of[one.name] = bytes_of.get(one.name, 0) + one.length
    for one in {one.name: one for one in parameters}.values():
        wanted = math.prod(one.shape) * ITEM_BYTES.get(one.dtype, 0)
        if wanted and bytes_of[one.name] != wanted:
            kind = incomplete if bytes_of[one.name] < wanted else corrupt
            raise DamagedError(kind(f"parameter {one.name}: {bytes_of[one.name]} bytes where its shape needs {wanted}"))


def _spans(source: Source, parameters: Sequence[Parameter]) -> Iterator[Span]:
    end = _end(source)
    values = tuple(Values(one.offset, one.length, one.dtype, one.name) for one in parameters if one.dtype)
    if end < source.size:
        crc = int.from_bytes(source.at(end + len(TRAILER), 10), "big")
        yield Span(0, end, "its content", crc=crc, values=values)
        return
    for one in values:
        yield Span(one.offset, one.length, f"parameter {one.name}", values=(one,))

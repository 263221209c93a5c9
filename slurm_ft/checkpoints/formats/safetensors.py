"""safetensors files: an 8-byte length, a JSON header, the tensors' bytes without a gap. No checksum.

Its own loader finds a wrong length or header; a body full of zeros or NaN only a look at the values finds.
Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..finding import Level, corrupt, incomplete, note
from .source import Checked, DamagedError, Span, Values
from .stub_pickle import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .source import Source

LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100_000_000  # the format's own limit
MOST_PARSED_BYTES = 16 << 20  # what we parse: some 150,000 tensors, within 300 MB
SPAN_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of the header. Offsets are in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """A parsed header. `tensors` are in the order of the file."""

    tensors: tuple[Tensor, ...]
    metadata: dict[str, str]


def check_safetensors(source: Source, level: Level) -> Checked:
    """Judge one file."""
    try:
        header = read_header(source)
    except DamagedError as error:
        return Checked((error.finding,))
    if header is None:
        return Checked((note("its header is too large to check"),))
    return Checked(spans=tuple(spans(header.tensors)) if level is Level.DEEP else ())


def read_header(source: Source) -> Header | None:
    """Return the header, compared with the file's size; None if it is too large for us. Raises DamagedError."""
    length = int.from_bytes(source.at(0, LENGTH_BYTES), "little")
    if source.size < LENGTH_BYTES:
        raise DamagedError(incomplete("truncated: shorter than a header"))
    if not 2 <= length <= MOST_HEADER_BYTES:
        raise DamagedError(corrupt("it does not begin as a safetensors file does"))
    if LENGTH_BYTES + length > source.size:
        raise DamagedError(incomplete("truncated: its header is longer than the file"))
    if length > MOST_PARSED_BYTES:
        return None
    tensors, metadata = _parse(source.at(LENGTH_BYTES, length), LENGTH_BYTES + length)
    _compare(tensors, LENGTH_BYTES + length, source.size)
    return Header(tensors, metadata)


def _parse(content: bytes, start: int) -> tuple[tuple[Tensor, ...], dict[str, str]]:
    try:
        header: dict[str, Any] = json.loads(content)
        metadata = header.pop("__metadata__", {})
        tensors = [_tensor(name, entry, start) for name, entry in header.items()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedError(corrupt(f"its header cannot be parsed: {error}")) from error
    return tuple(sorted(tensors, key=lambda tensor: (tensor.start, tensor.end))), metadata


def _tensor(name: str, entry: dict[str, Any], start: int) -> Tensor:
    begin, end = (int(offset) for offset in entry["data_offsets"])
    shape = tuple(int(size) for size in entry["shape"])
    dtype = str(entry["dtype"])
    wanted = math.prod(shape) * ITEM_BYTES.get(dtype, 0)
    if begin < 0 or end < begin or (wanted and end - begin != wanted):
        raise DamagedError(corrupt(f"tensor {name}: its offsets do not fit its shape"))
    return Tensor(name, dtype, shape, start + begin, start + end)


def _compare(tensors: Sequence[Tensor], start: int, size: int) -> None:
    place = start
    for tensor in tensors:
        if tensor.start != place:
            raise DamagedError(corrupt(f"tensor {tensor.name}: there is a gap or an overlap before it"))
        place = tensor.end
    if size < place:
        raise DamagedError(incomplete(f"truncated: {size} bytes where its tensors need {place}"))
    if size > place:
        raise DamagedError(corrupt(f"{size} bytes where its tensors need {place}"))


def spans(tensors: Sequence[Tensor]) -> Iterator[Span]:
    """Cut the body into pieces that are read on their own, each with the tensors' stretches in it.

    A tensor is cut at multiples of 8 bytes, so that no number is.
    """
    stretches: list[Values] = []
    filled = 0
    for tensor in tensors:
        place = tensor.start
        while place < tensor.end:
            length = tensor.end - place
            if length > SPAN_BYTES - filled:
                length = (SPAN_BYTES - filled) // 8 * 8
            if length:
                stretches.append(Values(place, length, tensor.dtype, tensor.name))
                place, filled = place + length, filled + length
            if place < tensor.end:
                yield _span(stretches)
                stretches, filled = [], 0
    if stretches:
        yield _span(stretches)


def _span(stretches: Sequence[Values]) -> Span:
    start, last = stretches[0].offset, stretches[-1]
    return Span(start, last.offset + last.length - start, f"tensor {stretches[0].name}", values=tuple(stretches))

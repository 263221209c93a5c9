"""A safetensors file, laid out as the safetensors library does: the header at once, the tensors' bytes later.

Format: an 8-byte little-endian header length, a JSON header padded with spaces to a multiple of 8, then the data. The
library orders tensors by falling alignment of their type, then by name; the same order makes the same bytes.
Source: https://github.com/huggingface/safetensors, README and safetensors/src/tensor.rs.
"""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .image import Extent, FileImage, private_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import torch

    from .image import Region

# torch's name of a type, its safetensors name, its place in the library's order (tensor.rs, enum Dtype).
_TYPES = {
    "bool": ("BOOL", 0),
    "uint8": ("U8", 4),
    "int8": ("I8", 5),
    "float8_e5m2": ("F8_E5M2", 6),
    "float8_e4m3fn": ("F8_E4M3", 7),
    "float8_e8m0fnu": ("F8_E8M0", 8),
    "int16": ("I16", 11),
    "uint16": ("U16", 12),
    "float16": ("F16", 13),
    "bfloat16": ("BF16", 14),
    "int32": ("I32", 15),
    "uint32": ("U32", 16),
    "float32": ("F32", 17),
    "complex64": ("C64", 18),
    "float64": ("F64", 19),
    "int64": ("I64", 20),
    "uint64": ("U64", 21),
}


def can_save(tensors: Mapping[str, torch.Tensor]) -> bool:
    """Whether this writer knows all of it. The library's own `save_file` refuses or handles the rest."""
    spans = []
    for tensor in tensors.values():
        if _type_name(tensor) not in _TYPES or tensor.layout is not _strided() or tensor.device.type == "meta":
            return False
        if tensor.numel():
            if not tensor.is_contiguous():
                return False
            spans.append((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes))
    spans.sort()
    return all(left[1] <= right[0] for left, right in pairwise(spans))


def safetensors_image(
    tensors: Mapping[str, torch.Tensor],
    path: Path,
    metadata: Mapping[str, str] | None,
    region_of: Callable[[torch.UntypedStorage], Region],
) -> FileImage:
    """Return what `safetensors.torch.save_file(tensors, path, metadata)` would write."""
    ordered = sorted(tensors.items(), key=lambda item: (-_TYPES[_type_name(item[1])][1], item[0]))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at, spans = 0, []
    for name, tensor in ordered:
        end = at + tensor.nbytes
        header[name] = {
            "dtype": _TYPES[_type_name(tensor)][0],
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        spans.append((at, tensor))
        at = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    extents = [Extent(0, start, private_copy(struct.pack("<Q", len(text)) + text))]
    for offset, tensor in spans:
        if tensor.nbytes:
            region = region_of(tensor.untyped_storage())
            extents.append(
                Extent(start + offset, tensor.nbytes, region, int(tensor.storage_offset()) * tensor.itemsize)
            )
    shapes = {name: [header[name]["dtype"], header[name]["shape"]] for name in tensors}
    return FileImage(path, start + at, extents, shapes)


def _type_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _strided() -> torch.layout:
    import torch  # noqa: PLC0415

    return torch.strided

"""Tensors that are small parts of large storages: torch.save writes the whole storage of each.

A view of 4 KiB into a pool of 1 GiB would make a file of 1 GiB. The frameworks' own savers decide that for themselves;
for a loop of one's own we copy such views, where the state as a whole uses less than half of a storage.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from .live import identity

# A storage below this is written whole: it costs nothing.
NEGLIGIBLE = 1 << 20


def without_pools(value: Any) -> Any:
    """Return the value with copies in the place of views that use little of their storage."""
    used: Counter[int] = Counter()
    for tensor in _tensors(value):
        used[identity(tensor)] += tensor.nbytes
    return _replaced(value, used)


def _tensors(value: Any) -> list[Any]:
    import torch  # noqa: PLC0415 - heavy

    if isinstance(value, torch.Tensor):
        return [value] if value.layout is torch.strided else []
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in _tensors(item)]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _replaced(value: Any, used: Counter[int]) -> Any:
    import torch  # noqa: PLC0415 - heavy

    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return value
        size = value.untyped_storage().nbytes()
        return value.clone() if size > NEGLIGIBLE and 2 * used[identity(value)] < size else value
    if type(value) is dict:
        return {key: _replaced(item, used) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_replaced(item, used) for item in value)
    if isinstance(value, dict):  # a module's: it carries version numbers as an attribute, which copy.copy keeps
        twin = copy.copy(value)
        for key, item in value.items():
            twin[key] = _replaced(item, used)
        return twin
    return value

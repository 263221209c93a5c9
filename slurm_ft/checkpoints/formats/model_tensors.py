"""Which tensors of a checkpoint file are the model's, by the names that scripts and frameworks give the parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .stub_pickle import TensorStub

if TYPE_CHECKING:
    from collections.abc import Iterator

# Keys under which a file of many parts keeps the model: the users' scripts, DeepSpeed, Lightning, Megatron.
MODEL_KEYS = ("net", "model", "model_state_dict", "state_dict", "module", "model_state", "model_dict", "weights", "ema")
MOST_DEPTH = 8


def model_tensors(tree: Any) -> dict[str, TensorStub]:
    """Return the model's tensors by name: those below a known key, or all of a file that is nothing but tensors."""
    if not isinstance(tree, dict):
        return {}
    parts = [(key, tree[key]) for key in MODEL_KEYS if key in tree]
    if not parts and tree and all(isinstance(value, TensorStub) for value in tree.values()):
        parts = [("", tree)]
    return {name: tensor for key, part in parts for name, tensor in _tensors(part, key, 0, set())}


def _tensors(tree: Any, path: str, depth: int, seen: set[int]) -> Iterator[tuple[str, TensorStub]]:
    """Walk each container once: a pickle may refer to one from many places."""
    if isinstance(tree, TensorStub):
        yield path, tree
    elif isinstance(tree, (dict, list, tuple)) and depth < MOST_DEPTH and id(tree) not in seen:
        seen.add(id(tree))
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _tensors(value, f"{path}.{key}" if path else str(key), depth + 1, seen)

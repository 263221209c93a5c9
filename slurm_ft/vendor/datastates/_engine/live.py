"""Which memory changes in an optimizer step and nowhere else: only that may be copied late.

That is the parameters and state tensors of the optimizers whose global pre-step hook fired since the last save, and
what an integration vouches for. An optimizer that does not derive from torch.optim.Optimizer never fires the hook; what
it trains is copied at capture.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch


# By then CUDA graphs are recorded, as a rule; page-locking memory meanwhile could break a recording.
SETTLED_STEPS = 50


def identity(tensor: torch.Tensor) -> int:
    """Return what tensors of one storage have in common: the address of the storage object, as torch.save uses it."""
    return int(tensor.untyped_storage()._cdata)


class SeenOptimizers:
    """The optimizers that announced a step, and those that did so since the last save."""

    def __init__(self) -> None:
        self._recent: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._steps: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()
        self._graphed: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    def step_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Note that it is about to step; return whether it is seen for the first time."""
        self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
        if optimizer not in self._graphed:
            self._recent.add(optimizer)
        return self._steps[optimizer] == 1

    def distrust(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that its step goes into a CUDA graph, whose replays fire no hook: it never counts again."""
        self._graphed.add(optimizer)
        self._recent.discard(optimizer)

    def settled_bytes(self, optimizer: torch.optim.Optimizer) -> int:
        """Return what its parameters and state take on the GPU: once, when it has made SETTLED_STEPS, else 0."""
        if self._steps.get(optimizer) != SETTLED_STEPS:
            return 0
        return sum(tensor.nbytes for tensor in _tensors(optimizer) if tensor.is_cuda)

    def forget(self) -> None:
        """Begin a new interval between saves."""
        self._recent.clear()

    @property
    def any(self) -> bool:
        """Whether the hook fired since the last save."""
        return len(self._recent) > 0

    def tensors(self) -> Iterator[torch.Tensor]:
        """Return the parameters and state tensors of the recent ones."""
        for optimizer in list(self._recent):
            yield from _tensors(optimizer)


def _tensors(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    import torch  # noqa: PLC0415

    for group in optimizer.param_groups:
        yield from group["params"]
    for state in optimizer.state.values():
        if isinstance(state, dict):
            yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def identities(tensors: Iterable[torch.Tensor]) -> frozenset[int]:
    """Return the identities of the tensors that have memory of their own."""
    found = set()
    for tensor in tensors:
        local = getattr(tensor, "_local_tensor", tensor)  # a DTensor's shard
        try:
            found.add(identity(local))
        except (RuntimeError, NotImplementedError):  # a subclass without storage
            continue
    return frozenset(found)

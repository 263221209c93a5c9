"""The processes that save together. Every call here is collective: all ranks make it, on their training thread.

The engine's own threads never call any of this: a collective in a thread would meet the training's in any order.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Launchers' variables, in order of preference.
_LOCAL_RANK_NAMES = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_LOCAL_SIZE_NAMES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")


class Ranks(Protocol):
    """This process among those that save together."""

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        ...

    @property
    def world_size(self) -> int:
        """How many there are."""
        ...

    def minimum(self, value: int) -> int:
        """Return the smallest value that any rank passed."""
        ...

    def broadcast(self, text: str) -> str:
        """Return the text that rank 0 passed."""
        ...


class SingleRank:
    """A training of one process."""

    rank = 0
    world_size = 1

    def minimum(self, value: int) -> int:
        """Return the value."""
        return value

    def broadcast(self, text: str) -> str:
        """Return the text."""
        return text


class TorchRanks:
    """The ranks of torch.distributed, over a gloo group of our own: its tensors stay on the CPU."""

    def __init__(self) -> None:
        from torch import distributed  # noqa: PLC0415

        self._distributed = distributed
        self.rank: int = distributed.get_rank()
        self.world_size: int = distributed.get_world_size()
        self._group = distributed.new_group(backend="gloo")

    def minimum(self, value: int) -> int:
        """Return the smallest value that any rank passed."""
        import torch  # noqa: PLC0415

        least = torch.tensor([value], dtype=torch.int64)
        self._distributed.all_reduce(least, self._distributed.ReduceOp.MIN, group=self._group)
        return int(least.item())

    def broadcast(self, text: str) -> str:
        """Return the text that rank 0 passed."""
        box = [text]
        self._distributed.broadcast_object_list(box, src=0, group=self._group)
        return box[0]


def discover() -> Ranks:
    """Return the ranks of torch.distributed where it runs, else the one process. Collective."""
    from torch import distributed  # noqa: PLC0415

    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        return TorchRanks()
    return SingleRank()


def local_rank(environ: Mapping[str, str] = os.environ) -> int:
    """Return this process's number among the ranks of its node; 0 if nothing says so."""
    return _first_number(_LOCAL_RANK_NAMES, environ, 0)


def local_size(environ: Mapping[str, str] = os.environ) -> int:
    """Return how many ranks share this node's memory; 1 if nothing says so."""
    return _first_number(_LOCAL_SIZE_NAMES, environ, 1)


def _first_number(names: Sequence[str], environ: Mapping[str, str], default: int) -> int:
    return next((int(environ[name]) for name in names if environ.get(name, "").isdigit()), default)

"""Mends, for the tests only, what keeps stock frameworks from training on a CPU. Nothing here is about our checkpoints.

* torch.load cannot map "cpu:0", which transformers 5.10 asks for when it resumes under DDP;
* deepspeed 0.18's ZeRO-1 and -2 gather into views, which torch 2.13's gloo refuses ("Output 0 of Split is a view");
* deepspeed's ZeRO-3 leaves it to the order of a GPU's stream that what it gathers is there. On a CPU nothing waits:
  on a busy machine one training in seven went another way (0.18.9, with nothing of ours);
* deepspeed compiles an operator for shared-memory reductions at the first start, two minutes long; gloo does without.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from typing import Any

import torch

ASYNCHRONOUS = ("all_gather_into_tensor", "all_gather", "reduce_scatter_tensor", "all_reduce", "broadcast")


def mend_torch() -> None:
    """Let torch.load take "cpu:0" for the CPU."""
    torch.serialization.register_package(
        11, lambda _: None, lambda storage, place: storage if re.fullmatch(r"cpu:\d+", place) else None
    )


def mend_deepspeed() -> None:
    """Keep to gloo, gather into tensors that are no views, and wait. Call it before the process group is made."""
    communication = importlib.import_module("deepspeed.comm.torch")
    communication.build_shm_op = lambda: None
    backend = communication.TorchBackend
    gather = backend.all_gather_into_tensor

    def gather_detached(self, output_tensor, input_tensor, *args, **options):
        return gather(self, output_tensor.detach(), input_tensor.detach(), *args, **options)

    backend.all_gather_into_tensor = gather_detached
    for name in ASYNCHRONOUS:
        setattr(backend, name, _waiting(getattr(backend, name)))


def _waiting(collective: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(collective)
    def wrapper(*args: Any, **options: Any) -> Any:
        work = collective(*args, **options)
        if hasattr(work, "wait"):
            work.wait()
        return work

    return wrapper

"""Mends, for the tests only, what keeps stock frameworks from training on a CPU. Nothing here is about our checkpoints.

* torch.load cannot map "cpu:0", which transformers 5.10 asks for when it resumes under DDP;
* deepspeed 0.18's ZeRO-1 and -2 gather into views, which torch 2.13's gloo refuses ("Output 0 of Split is a view");
* deepspeed compiles an operator for shared-memory reductions at the first start, two minutes long; gloo does without.
"""

from __future__ import annotations

import importlib
import re

import torch


def mend_torch() -> None:
    """Let torch.load take "cpu:0" for the CPU."""
    torch.serialization.register_package(
        11, lambda _: None, lambda storage, place: storage if re.fullmatch(r"cpu:\d+", place) else None
    )


def mend_deepspeed() -> None:
    """Keep to gloo, and gather into tensors that are no views. Call it before the process group is made."""
    communication = importlib.import_module("deepspeed.comm.torch")
    communication.build_shm_op = lambda: None
    backend = communication.TorchBackend
    gather = backend.all_gather_into_tensor

    def gather_detached(self, output_tensor, input_tensor, *args, **options):
        return gather(self, output_tensor.detach(), input_tensor.detach(), *args, **options)

    backend.all_gather_into_tensor = gather_detached

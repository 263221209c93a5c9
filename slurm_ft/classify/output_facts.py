"""What the names of signatures in the job's own output say (sensors/output_signatures.py): name -> Fact.

The user writes that text, so it convicts hardware only where CUDA itself reports what no program can cause. In a job of
several nodes it does not say which one it was: `..._somewhere` then convicts nobody.
"""

from __future__ import annotations

from slurm_ft.classify.fact import Blame, Fact
from slurm_ft.model import Certainty, Scope

_LIKELY = Certainty.LIKELY
SOMEWHERE = "_somewhere"


def _program(what: str, certainty: Certainty = Certainty.CERTAIN) -> Fact:
    return Fact(Blame.APPLICATION, what, scope=Scope.JOB, certainty=certainty)


def _symptom(what: str) -> Fact:
    return Fact(Blame.NOBODY, what, scope=Scope.JOB)


_HARDWARE = {
    "cuda_ecc": "CUDA's report of an uncorrectable ECC error (214)",
    "cuda_nvlink": "CUDA's report of an uncorrectable NVLink error (220)",
    "cuda_contained": "CUDA's report of a contained memory error (226)",
    "cuda_hardware_stack": "CUDA's report of a hardware stack error (714)",
}

OUTPUT_FACTS = {
    **{
        name: Fact(Blame.HARDWARE, what, drains=name != "cuda_contained", scope=Scope.NODE, certainty=_LIKELY)
        for name, what in _HARDWARE.items()
    },
    **{f"{name}{SOMEWHERE}": Fact(Blame.AMBIGUOUS, what, scope=Scope.JOB) for name, what in _HARDWARE.items()},
    "image_pull": _program("the container image that could not be loaded"),
    "cuda_out_of_memory": _program("CUDA out of memory"),
    "device_assert": _program("an assertion in a CUDA kernel"),
    "shared_memory_full": _program("a full /dev/shm"),
    "disk_full": _program("a full file system or quota"),
    "host_out_of_memory": _program("a memory limit"),
    "cuda_illegal_access": _program("an illegal memory access on the GPU", _LIKELY),
    "cuda_launch_failure": _program("a failed CUDA launch", _LIKELY),
    "python_exception": _program("a Python exception"),
    "program_error": _program("an error of the program or its command line"),
    "cuda_unknown": _symptom("a CUDA error without a cause"),
    "cuda_node_state": _symptom("a GPU that CUDA cannot use"),
    "nccl_watchdog": _symptom("an NCCL time-out"),
    "network_error": _symptom("a lost peer or connection"),
    "storage_error": _symptom("a file system error"),
    "child_failed": _symptom("a failed child process"),
    "killed": _symptom("a kill signal"),
    "node_failure_text": _symptom("a node failure, by the job's own output,"),
}

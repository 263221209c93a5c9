"""What NVML and DCGM say of a GPU after an attempt: event name -> Fact.

The names are those of sensors/nvml_events.py, nvml_watch.py, dcgm.py and dcgm_exporter.py. Three rules made the table:

* A state convicts only if it came about in the attempt, or if nothing can run in it (lost, reset required).
* A state from before the attempt, or of unknown date, explains no death; the node may need a drain all the same.
* What NVML answers when the driver is not loaded or does not match is the node's software: neither GPU nor program.

Slow-down by heat or power has no row: it ends no job.
"""

from __future__ import annotations

from slurm_ft.classify.fact import Blame, Fact
from slurm_ft.model import Certainty, Scope

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping

LIKELY = Certainty.LIKELY


def _dated(name: str, now: Fact, earlier: Fact) -> dict[str, Fact]:
    """The rows of a lasting state: come about in the attempt, known from before it, of unknown date."""
    return {name: now, f"{name}_before": earlier, f"{name}_undated": earlier}


NVML: Mapping[str, Fact] = {
    # Nothing runs on such a GPU, whenever it happened.
    "gpu_lost": Fact(Blame.HARDWARE, "NVML's answer 'GPU is lost'", drains=True),
    "reset_required": Fact(Blame.HARDWARE, "NVML's answer 'reset required'", drains=True),
    "gpu_missing": Fact(Blame.HARDWARE, "NVML's loss of the GPU", drains=True),
    "gpu_cannot_be_opened": Fact(Blame.HARDWARE, "NVML's failure to open the GPU", drains=True, certainty=LIKELY),
    "insufficient_power": Fact(Blame.HARDWARE, "missing external power", drains=True),
    "gpu_unavailable": Fact(Blame.HARDWARE, "NVML's event that the GPU is unavailable", drains=True),
    "poison_fatal": Fact(Blame.HARDWARE, "the use of poisoned data that the GPU could not contain", drains=True),
    "poison_contained": Fact(Blame.HARDWARE, "the use of poisoned data, which the GPU contained"),
    "irq_issue": Fact(Blame.HARDWARE, "the loss of interrupts", drains=True, scope=Scope.NODE),
    # The driver's own word on what the GPU needs. It lasts, and other things than faults of the GPU raise it too.
    **_dated(
        "recovery_action",
        Fact(
            Blame.HARDWARE,
            "the recovery action that the driver asked for in this attempt",
            drains=True,
            certainty=LIKELY,
        ),
        Fact(Blame.AMBIGUOUS, "a recovery action of the driver that need not be from this attempt", drains=True),
    ),
    "recovery_action_explained": Fact(
        Blame.AMBIGUOUS, "the recovery action that follows from a code in the kernel log", drains=True
    ),
    # Memory. The error itself ends the program; the GPU masks the page and stays usable.
    "ecc_uncorrected_now": Fact(Blame.HARDWARE, "an uncorrectable memory error counted in this attempt"),
    "row_remapped": Fact(Blame.HARDWARE, "a memory row remapped in this attempt after an uncorrectable error"),
    "page_retired": Fact(Blame.HARDWARE, "a memory page retired in this attempt after a double-bit error"),
    **_dated(
        "row_remap_failure",
        Fact(Blame.HARDWARE, "a memory row that could not be remapped", drains=True),
        Fact(Blame.AMBIGUOUS, "a remap failure that need not be from this attempt", drains=True),
    ),
    # The count of a lifetime: the last error of many passes the limit, and that one was in the attempt.
    **_dated(
        "sram_threshold",
        Fact(Blame.HARDWARE, "SRAM errors that passed NVIDIA's limit in this attempt", drains=True, certainty=LIKELY),
        Fact(Blame.AMBIGUOUS, "SRAM errors that passed NVIDIA's limit, not surely in this attempt", drains=True),
    ),
    # Correctable errors lead to it too, and the GPU works on without the reset.
    **_dated(
        "row_remap_pending",
        Fact(Blame.NOBODY, "a pending row remap"),
        Fact(Blame.NOBODY, "a pending row remap that need not be from this attempt"),
    ),
    **_dated(
        "page_retirement_pending",
        Fact(Blame.NOBODY, "a pending page retirement"),
        Fact(Blame.NOBODY, "a pending page retirement that need not be from this attempt"),
    ),
    # With MIG on the counters are the whole GPU's, and the slices are several jobs'.
    "ecc_uncorrected_now_shared": Fact(Blame.AMBIGUOUS, "an uncorrectable memory error on a GPU that jobs share"),
    "row_remapped_shared": Fact(Blame.AMBIGUOUS, "a row remapped on a GPU that jobs share"),
    "page_retired_shared": Fact(Blame.AMBIGUOUS, "a page retired on a GPU that jobs share"),
    "pcie_fatal_shared": Fact(Blame.AMBIGUOUS, "a fatal PCIe error on a GPU that jobs share"),
    "nvlink_recovery_failed_shared": Fact(Blame.AMBIGUOUS, "an NVLink that did not recover on a GPU that jobs share"),
    # Links. The fault may be at the other end.
    "pcie_fatal": Fact(Blame.HARDWARE, "a fatal PCIe error counted in this attempt", certainty=LIKELY),
    "nvlink_recovery_failed": Fact(
        Blame.HARDWARE,
        "an NVLink that did not recover in this attempt",
        drains=True,
        scope=Scope.FABRIC,
        certainty=LIKELY,
    ),
    **_dated(
        "fabric_unhealthy",
        Fact(
            Blame.HARDWARE,
            "the NVLink fabric, which became unhealthy in this attempt",
            drains=True,
            scope=Scope.FABRIC,
            certainty=LIKELY,
        ),
        Fact(Blame.AMBIGUOUS, "an unhealthy NVLink fabric", scope=Scope.FABRIC),
    ),
    # The fabric manager's work: it may just have been restarted.
    **_dated(
        "fabric_not_ready",
        Fact(Blame.AMBIGUOUS, "an NVLink fabric that is not set up", scope=Scope.FABRIC),
        Fact(Blame.AMBIGUOUS, "an NVLink fabric that is not set up", scope=Scope.FABRIC),
    ),
    **_dated(
        "inforom_corrupted",
        Fact(Blame.HARDWARE, "the GPU's InfoROM, corrupted in this attempt", certainty=LIKELY),
        Fact(Blame.NOBODY, "a corrupted InfoROM that need not be from this attempt"),
    ),
    # The node around the GPUs.
    "gpu_not_found_before": Fact(Blame.AMBIGUOUS, "an address at which NVML never knew a GPU"),
    "gpu_not_found_undated": Fact(Blame.AMBIGUOUS, "an address at which NVML knows no GPU"),
    "gpu_count_fell": Fact(Blame.NOBODY, "the loss of a GPU of the node", drains=True, scope=Scope.NODE),
    "nvml_hang": Fact(Blame.HARDWARE, "a hang of NVML", drains=True, scope=Scope.NODE, certainty=LIKELY),
    "nvml_timeout": Fact(Blame.AMBIGUOUS, "a time-out of NVML", scope=Scope.NODE),
    "nvml_unknown_error": Fact(Blame.AMBIGUOUS, "NVML's answer 'unknown error'", scope=Scope.NODE),
    "driver_not_loaded": Fact(Blame.AMBIGUOUS, "the absence of NVIDIA's driver", scope=Scope.NODE),
    "library_mismatch": Fact(Blame.AMBIGUOUS, "a driver of another version than NVML", scope=Scope.NODE),
}

DCGM: Mapping[str, Fact] = {
    # DCGM's watches keep a failure until it is looked at; when it happened is not said.
    "dcgm_failure": Fact(Blame.AMBIGUOUS, "DCGM's verdict that the GPU has failed", drains=True),
    "dcgm_warning": Fact(Blame.NOBODY, "a warning of DCGM"),
}

GPU_STATE_FACTS: Mapping[str, Fact] = {**NVML, **DCGM}

"""What the names of GPU states say that are read from the texts of nvidia-smi, NVML, DCGM, lspci and the driver.

What a GPU keeps from before the attempt (rows waiting to be remapped, a corrupt InfoROM) proves nothing about it: only
a comparison with the state at its start could.
"""

from __future__ import annotations

from slurm_ft.classify.fact import Blame, Fact
from slurm_ft.model import Certainty, Scope

_LIKELY = Certainty.LIKELY


def _broken(what: str, certainty: Certainty = Certainty.CERTAIN, scope: Scope = Scope.GPU) -> Fact:
    return Fact(Blame.HARDWARE, what, drains=True, scope=scope, certainty=certainty)


GPU_TEXT_FACTS = {
    "gpu_lost": _broken("a lost GPU"),
    "device_handle_error": _broken("a GPU that cannot be opened"),
    "pci_all_ones": _broken("a GPU that answers nothing on PCI (revision ff)"),
    "reset_required": _broken("a GPU that must be reset"),
    "gpu_missing": _broken("a GPU that is missing", _LIKELY),
    "gpu_unreadable": _broken("a GPU whose state cannot be read", _LIKELY),
    "power_missing": _broken("a GPU without external power"),
    "ecc_uncorrected": _broken("an uncorrectable memory error since the driver was loaded", _LIKELY),
    "remap_failed": _broken("GPU memory that can no longer be repaired"),
    "recovery_action": _broken("the recovery action that the GPU asks for", _LIKELY),
    "nvml_hang": _broken("a driver that no longer answers", _LIKELY, Scope.NODE),
    "nvlink_down": _broken("an NVLink that is down", _LIKELY, Scope.FABRIC),
    "rm_init_failed": _broken("a GPU that the driver cannot start", _LIKELY),
    "gsp_timeouts": _broken("a GPU whose firmware does not answer"),
    "remap_pending": Fact(Blame.NOBODY, "GPU memory that waits to be repaired"),
    "inforom_error": _broken("a GPU whose InfoROM cannot be read", _LIKELY),
    "interrupt_error": _broken("a GPU whose interrupts are lost", _LIKELY),
    "inforom_corrupt": Fact(Blame.AMBIGUOUS, "a corrupt InfoROM"),
    "slowdown": Fact(Blame.NOBODY, "a GPU that was slowed down"),
    "driver_mismatch": Fact(Blame.NOBODY, "a driver that does not fit its library", scope=Scope.NODE),
    "driver_missing": Fact(Blame.NOBODY, "a driver that is not loaded", scope=Scope.NODE),
}

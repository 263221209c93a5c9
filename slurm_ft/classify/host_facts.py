"""What the names of host events say (sensors/host_lines.py and the texts of ibstat): name -> Fact.

Node-side hardware drains: another job on the node would meet it too. What the machine corrected by itself, or what
nobody can be blamed for, explains no death.
"""

from __future__ import annotations

from slurm_ft.classify.fact import Blame, Fact
from slurm_ft.model import Certainty, Scope

_LIKELY = Certainty.LIKELY


def _broken(what: str, certainty: Certainty = Certainty.CERTAIN) -> Fact:
    return Fact(Blame.HARDWARE, what, drains=True, scope=Scope.NODE, certainty=certainty)


def _broken_link(what: str) -> Fact:
    """The other end of the cable may be to blame."""
    return Fact(Blame.HARDWARE, what, drains=True, scope=Scope.FABRIC, certainty=_LIKELY)


def _notice(what: str) -> Fact:
    return Fact(Blame.NOBODY, what, scope=Scope.NODE)


HOST_FACTS = {
    "mce_uncorrected": _broken("an uncorrected machine check"),
    "mce_corrected": _notice("a corrected machine check"),
    # What it was stands in lines of its own: a lost page ("Memory failure"), a PCIe error (AER).
    "cper_recoverable": _notice("a recoverable error that the firmware reported"),
    "memory_failure": _broken("a host memory page that was lost"),
    "edac_uncorrected": _broken("an uncorrectable host memory error"),
    "pcie_fatal": _broken("a fatal PCIe error"),
    "pcie_link_down": _broken("a PCIe device that vanished from its slot", _LIKELY),
    "pcie_nonfatal": _notice("a non-fatal PCIe error"),
    "nic_failed": _broken("a failed network card"),
    "nic_cable": _broken_link("a faulty network cable"),
    "nic_link_down": _notice("a network link that went down"),
    "nic_down": _broken_link("a network port that is down"),
    "disk_failed": _broken("a failed disk"),
    "disk_io_error": _broken("a disk I/O error", _LIKELY),
    "thermal_shutdown": _broken("a critical temperature of the host"),
    "oom_kill": Fact(Blame.APPLICATION, "the kernel's OOM killer", scope=Scope.JOB, certainty=_LIKELY),
    "oom_kill_elsewhere": _notice("the kernel's OOM killer, on a process that need not be the job's,"),
    "soft_lockup": _notice("a soft lockup"),
    "driver_mismatch": _notice("a driver that does not fit its library"),
}

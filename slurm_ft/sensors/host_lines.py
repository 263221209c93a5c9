"""Kernel messages about the node around the GPUs -> event names: memory, PCIe, network, disk, OOM killer. Pure.

The wordings are those of Linux (mce, edac, aer, nvme, mlx5, mm/oom_kill) and of public reports. Every pattern is
matched at the start of the message, and what it asks for is longer than a process name (15 bytes), which a user chooses
and which the kernel prints at the start of some messages (`python[123]: segfault at ...`).
"""

from __future__ import annotations

import re
from functools import lru_cache

# One of these stands in every line that a pattern below matches: a cheap look before anything is decoded. Rare words,
# since each line that has one is parsed: some drivers are talkative.
HINTS = (
    b"[Hardware Error]",
    b"achine Check",
    b"achine check",
    b"ardware memory error",
    b"Memory failure: ",
    b" UE ",
    b" (Fatal) error ",
    b"severity=Unc",
    b"(Non-Fatal) error ",
    b"unmasked uncorrectable",
    b"containment event",
    b"pciehp: Slot(",
    b"Timeout: Not all CPUs",
    b"health compromised",
    b"unrecoverable hardware",
    b"firmware internal error",
    b"cause a leak of",
    b"Fatal error ",
    b"nternal error detected",
    b"going to be reset",
    b"Cable error",
    b": Link down",
    b"controller is down",
    b"probe failure",
    b"Device not ready",
    b"reset failure",
    b"from D3cold to D0",  # kernel_lines.py
    b"I/O error",
    b"I/O Error",
    b"rror (sct ",
    b"critical medium error",
    b"emory: Kill",
    b"oom-kill:",
    b"soft lockup",
    b"critical temperature",
)

_PCI = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_DISK = r"(?:nvme[0-9]+(?:c[0-9]+)?n[0-9]+|sd[a-z]{1,3})"
_TRAINING = r"(?:python|pt_main_thread|torchrun|ray::|train|deepspeed|accelerate)"
_ECHO = r"(?:\{[0-9]+\})?\[Hardware Error\]: "

# Tried in this order; the first that matches names the event. `mce: [Hardware Error]: Machine check events logged`
# stands before corrected errors as well, so it says nothing.
_TABLE = (
    ("mce_uncorrected", r"(?:mce: )?\[Hardware Error\]: CPU [0-9]+: Machine Check Exception: "),
    ("mce_uncorrected", rf"(?:mce: )?{_ECHO}(?:Machine check: Processor context corrupt|Uncorrected, )"),
    (
        "mce_uncorrected",
        rf"(?:mce: )?{_ECHO}CPU:[0-9]+ \([0-9a-f:]+\) MC[0-9A-Z]+_STATUS\[(?:[^|\]]{{1,12}}\|)?UE\|",
    ),
    ("mce_uncorrected", rf"(?:mce: )?{_ECHO}System Fatal error"),
    ("mce_uncorrected", r"mce: Uncorrected hardware memory error in "),
    ("mce_uncorrected", r"Kernel panic - not syncing: (?:Fatal [Mm]achine [Cc]heck|Timeout: Not all CPUs entered)"),
    ("mce_uncorrected", rf"{_ECHO}event severity: fatal"),
    ("cper_recoverable", rf"{_ECHO}event severity: recoverable"),
    (
        "memory_failure",
        r"Memory failure: 0x[0-9a-f]+: (?:Killing |Sending SIGBUS to |recovery action for .{1,60}: Fail)",
    ),
    ("edac_uncorrected", r"EDAC [A-Za-z0-9_# ]{2,40}: (?:[0-9]+ )?UE (?:[A-Za-z]+ ){0,6}on [A-Za-z_]+#"),
    ("edac_uncorrected", r"EDAC [A-Za-z0-9_# ]{2,40}: UE page 0x[0-9a-f]+, "),
    ("pcie_fatal", rf"pcieport {_PCI}: (?:AER: )?(?:Multiple )?Uncorrect(?:ed|able) \(Fatal\) error "),
    ("pcie_fatal", rf"pcieport {_PCI}: AER: Multiple Uncorrect(?:ed|able) \(Fatal\) error "),
    ("pcie_fatal", rf"[a-z0-9_-]+ {_PCI}: (?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Fatal\)"),
    ("pcie_fatal", rf"pcieport {_PCI}: DPC: (?:unmasked uncorrectable error detected|containment event)"),
    ("pcie_link_down", rf"pcieport {_PCI}: pciehp: Slot\([^)]{{1,20}}\): (?:Link Down|Card not present)"),
    ("pcie_nonfatal", rf"pcieport {_PCI}: AER: (?:Multiple )?Uncorrect(?:ed|able) \(Non-Fatal\) error "),
    ("nic_failed", rf"mlx[45]_core {_PCI}: .{{0,80}}device's health compromised - reached miss count"),
    (
        "nic_failed",
        rf"mlx[45]_core {_PCI}: .{{0,120}}(?:unrecoverable hardware error|firmware internal error|Will cause a leak)",
    ),
    ("nic_failed", rf"mlx5_core {_PCI}: .{{0,80}}Fatal error [0-9a-fx]+ detected"),
    ("nic_failed", rf"mlx4_core {_PCI}: (?:Internal error detected|device is going to be reset)"),
    ("nic_cable", rf"mlx5_core {_PCI}: Port module event(?:\[error\])?: module [0-9]+, Cable error"),
    ("nic_link_down", rf"mlx[45]_core {_PCI}(?: [a-zA-Z0-9_.-]+)?: Link down"),
    (
        "disk_failed",
        r"nvme nvme[0-9]+: (?:controller is down; will reset|Removing after probe failure|Device not ready)",
    ),
    ("disk_failed", r"nvme nvme[0-9]+: Disabling device after reset failure"),
    ("disk_io_error", rf"(?:blk_update_request: |print_req_error: )?(?:critical medium|I/O) error, dev {_DISK}\b"),
    ("disk_io_error", rf"{_DISK}: [A-Za-z]{{1,20}}\(0x[0-9a-f]+\) @ LBA .{{1,60}} [Ee]rror \(sct "),
    ("disk_io_error", rf"Buffer I/O error on dev(?:ice)? {_DISK}"),
    ("disk_io_error", rf"{_DISK}: I/O Cmd\(0x[0-9a-f]+\) @ LBA .{{1,60}} I/O Error "),
    ("disk_io_error", rf"XFS \({_DISK}(?:p[0-9]+)?\): (?:metadata|log) I/O error"),
    ("oom_kill", r"Memory cgroup out of memory: Kill(?:ed)? process [0-9]+ "),
    ("oom_kill", rf"Out of memory: Kill(?:ed)? process [0-9]+ \({_TRAINING}"),
    ("oom_kill", r"oom-kill:constraint=CONSTRAINT_MEMCG,.{0,300}task_memcg=/[^,]{0,200}(?:slurm|job_)"),
    ("oom_kill_elsewhere", r"Out of memory: Kill(?:ed)? process [0-9]+ "),
    ("soft_lockup", r"(?:watchdog: )?BUG: soft lockup - CPU#"),
    ("thermal_shutdown", r"(?:thermal )?thermal_zone[0-9]+: critical temperature reached"),
)
_BANK = re.compile(
    r"(?:mce: \[Hardware Error\]|EDAC [A-Za-z0-9_# ]{2,40}): CPU:? ?[0-9]+: Machine Check(?: Event)?: [0-9]+"
    r" Bank [0-9]+: ([0-9a-f]{16})\b"
)
_VALID, _UNCORRECTED = 1 << 63, 1 << 61  # of IA32_MCi_STATUS (Intel SDM vol. 3B, 16.3.2.2)


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Compiled at the first line that needs them: a log without such lines costs nothing."""
    return tuple((name, re.compile(pattern)) for name, pattern in _TABLE)


def host_event(message: str) -> tuple[str, str | None] | None:
    """The name of what a kernel message reports, and the PCI address it names; None if it reports nothing of ours."""
    bank = _BANK.match(message)
    if bank is not None:
        status = int(bank[1], 16)
        return ("mce_uncorrected", None) if status & _VALID and status & _UNCORRECTED else ("mce_corrected", None)
    for name, pattern in _patterns():
        match = pattern.match(message)
        if match is not None:
            return name, match.groupdict().get("pci")
    return None

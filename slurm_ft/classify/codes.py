"""What the catalogue says about one code.

The fault classes are this project's reading of NVIDIA's catalogue: `hardware` (hardware, firmware or fabric; user code
is not to blame), `application` (the program in most cases), `ambiguous` (needs a second signal) and `info` (explains
no death). NVIDIA's action says what to do with the GPU, not who is guilty: RESTART_APP holds both a wild pointer (31)
and a memory fault that the hardware contained (94).
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_ft.classify.catalogue import NVLINK5_RULES, SXIDS, XIDS

CLEANUP = "secondary_cleanup"  # Xid 45: channels torn down after another error, scancel, a time limit or an OOM kill
NVLINK5 = "nvlink5_decode"  # Xid 144-150: the registers in the line decide


@dataclass(frozen=True, slots=True)
class XidFacts:
    """One row of NVIDIA's Xid catalogue, with our fault class."""

    name: str
    fault_class: str
    kind: str
    immediate: str | None
    investigatory: str | None
    unused: bool  # marked so by NVIDIA


@dataclass(frozen=True, slots=True)
class SxidFacts:
    """One row of the SXid tables of NVIDIA's fabric manager guide."""

    name: str
    potentially_fatal: bool
    always_fatal: bool


@dataclass(frozen=True, slots=True)
class Nvlink5Facts:
    """What NVIDIA's table says about the registers of one Xid 144-150 line."""

    action: str
    severity: str
    application_dies: bool


def xid_facts(code: int) -> XidFacts | None:
    """The catalogue's row, None for a code that it does not know."""
    row = XIDS.get(code)
    return None if row is None else XidFacts(*row)


def sxid_facts(code: int) -> SxidFacts | None:
    """The table's row, None for a code that it does not know."""
    row = SXIDS.get(code)
    return None if row is None else SxidFacts(*row)


def nvlink5_facts(code: int, unit: str, interrupt: int, status: int) -> Nvlink5Facts | None:
    """Decode the registers `intrInfo` and `errorStatus` of Xid 144-150; None if no row fits.

    The register layout changed with driver R575 and the line does not say which it is, so both are tried. Rows are
    matched by unit and exact status: a guess here would drain a node.
    """
    old = new = None
    for xid, units, old_mask, old_value, new_mask, new_value, row_status, action, severity, dies in NVLINK5_RULES:
        if xid != code or unit not in units or status != row_status:
            continue
        facts = Nvlink5Facts(action, severity, dies)
        old = facts if interrupt & old_mask == old_value else old
        new = facts if interrupt & new_mask == new_value else new
    return old or new

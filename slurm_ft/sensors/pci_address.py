"""One spelling for the PCI address of a device, whoever printed it."""

from __future__ import annotations

import re

# The driver prints `0000:3b:00`, /proc and lspci `0000:3b:00.0`, NVML `00000000:3B:00.0`.
_ADDRESS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?")


def canonical_pci(text: str) -> str | None:
    """`domain:bus:device` in lower case without a function, e.g. `0000:3b:00`; None if `text` is no PCI address.

    The domain has four hex digits, or more where it needs them (Intel VMD: `10000:01:00`).
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return None
    domain, bus, device = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}".lower()

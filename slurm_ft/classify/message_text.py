"""Facts that stand in a line after the code: the new recovery action, NVLink registers, the word `Fatal`.

A process name stands there too, and users choose it. It has 15 bytes, so none of the patterns fits into one; they are
anchored at the code all the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from slurm_ft.model import Event

_PROCESS = r"(?:pid=[^,]{1,20}, (?:name=.{0,20}?, )?)?"
_RECOVERY = re.compile(
    _PROCESS + r"GPU recovery action changed from 0x[0-9a-fA-F]{1,8} \([^)]{0,60}\) to 0x([0-9a-fA-F]{1,8})\b"
)
_NVLINK5 = re.compile(
    _PROCESS + r"([A-Z0-9_/]{2,40}) (?:Link )?(?:[Nn]on-?)?[Ff]atal XC[0-9]+ (?:i[0-9]+ )?Link -?[0-9]+"
    r" \(0x([0-9a-fA-F]{8}) 0x([0-9a-fA-F]{8})\b"
)
# The driver's severity is 0 for non-fatal and 1 for fatal (ctrl_dev_nvswitch.h); it prints the word in the first line
# of an SXid and the number in the second.
_SXID_FATAL = re.compile(r"(?:Fatal,|Severity 1 )")
_SXID_NOT_FATAL = re.compile(r"(?:Non-fatal,|Severity 0 )")


@dataclass(frozen=True, slots=True)
class Nvlink5Registers:
    """The unit that reported Xid 144-150, with the registers intrInfo and errorStatus."""

    unit: str
    interrupt: int
    status: int


def recovery_action(event: Event) -> int | None:
    """The number that the GPU's recovery action changed to (Xid 154), None if the line does not say."""
    match = _RECOVERY.match(_after_code(event))
    return None if match is None else int(match[1], 16)


def nvlink5_registers(event: Event) -> Nvlink5Registers | None:
    """The registers of Xid 144-150, None if the line has none (older drivers, shortened lines)."""
    match = _NVLINK5.match(_after_code(event))
    return None if match is None else Nvlink5Registers(match[1], int(match[2], 16), int(match[3], 16))


def says_fatal(event: Event) -> bool | None:
    """Whether the driver called this SXid fatal; None if the line does not say."""
    text = _after_code(event)
    if _SXID_FATAL.match(text):
        return True
    return False if _SXID_NOT_FATAL.match(text) else None


def _after_code(event: Event) -> str:
    """The text after `): CODE, `. The sensor made sure that the first `): ` is the driver's."""
    message = event.source.partition("Xid (")[2].partition("): ")[2]
    return message.partition(", ")[2]

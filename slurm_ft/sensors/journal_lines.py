"""Records of `journalctl -k -o json`: one JSON object a line. Pure."""

from __future__ import annotations

from dataclasses import dataclass

KERNEL = "kernel"  # what journald notes as _TRANSPORT of the kernel's own messages; a user cannot choose it
MAX_RECORD = 65536  # characters
_NUMBERS = frozenset(map(str, range(128)))


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One message of the kernel. Times are seconds; None if the record lacks them."""

    message: str
    since_boot: float | None  # the kernel's own stamp, on the same clock as /dev/kmsg
    wall: float | None
    priority: int = 0  # facility * 8 + level; the kernel's own messages have facility 0


def journal_record(text: str) -> JournalRecord | None:
    """Read one line; None if it is no record of the kernel (user programs write to the journal, too)."""
    if not text.startswith("{") or len(text) > MAX_RECORD:
        return None
    import json  # noqa: PLC0415 - the epilog needs it only when the kernel's own log was overwritten

    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or fields.get("_TRANSPORT") != KERNEL:
        return None
    message = _message(fields.get("MESSAGE"))
    if message is None:
        return None
    return JournalRecord(
        message,
        _seconds(fields.get("_SOURCE_MONOTONIC_TIMESTAMP")),
        _seconds(fields.get("__REALTIME_TIMESTAMP")),
        _small(fields.get("SYSLOG_FACILITY")) * 8 + _small(fields.get("PRIORITY")),
    )


def _small(value: object) -> int:
    return int(value) if isinstance(value, str) and value in _NUMBERS else 0


def _message(value: object) -> str | None:
    """journald writes text that is not UTF-8 as a list of byte values."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
        return bytes(value).decode("utf-8", "replace")
    return None


def _seconds(value: object) -> float | None:
    """Microseconds, as a decimal string."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        return int(value) / 1e6
    return None

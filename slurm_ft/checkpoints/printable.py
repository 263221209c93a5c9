"""Names, reasons and sizes for a log line: a checkpoint's files may be called anything."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return the text for a log line: one with line breaks or control characters is shown escaped, in quotes."""
    return text if text.isprintable() else ascii(text)


def size(count: int) -> str:
    """Bytes for people, with units of 1024."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"

"""Names and reasons for a log line: a checkpoint's files may be called anything."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return the text for a log line: one with line breaks or control characters is shown escaped, in quotes."""
    return text if text.isprintable() else ascii(text)

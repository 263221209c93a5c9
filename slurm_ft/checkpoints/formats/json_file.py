"""JSON files: whole if they parse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..files import SMALL_FILE_BYTES
from ..finding import corrupt, incomplete
from .source import Checked

if TYPE_CHECKING:
    from ..finding import Level
    from .source import Source


def check_json(source: Source, _level: Level) -> Checked:
    """Judge one file. One too large to parse within our memory has to end with its closing bracket."""
    if source.size > SMALL_FILE_BYTES:
        end = source.at(source.size - 64, 64).rstrip()
        return Checked() if end.endswith((b"}", b"]")) else Checked((incomplete("truncated: it has no end"),))
    content = source.at(0, source.size)
    try:
        json.loads(content)
    except (ValueError, RecursionError) as error:
        if content.rstrip(b"\0 \r\n").endswith((b"}", b"]")) and b"\0" not in content:
            return Checked((corrupt(f"no JSON: {error}"),))
        return Checked((incomplete(f"truncated: {error}"),))
    return Checked()

"""Files of the DataStates-LLM engine: an 8-byte length, a JSON header, the tensors' bytes, a pickle at the end.

The pickle is written first, at its final place, so a file that is still being written already has its full size, with
holes. The header names each tensor's `data_offsets`, relative to the header's end (DataStates-LLM, `helper.py`).
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ..finding import corrupt, incomplete
from .source import Checked

if TYPE_CHECKING:
    from ..finding import Level
    from .source import Source

LENGTH_BYTES = 8
MOST_HEADER_BYTES = 16 << 20


def is_datastates(source: Source) -> bool:
    """Tell whether the file begins with a length and a JSON object that names DataStates."""
    length = int.from_bytes(source.at(0, LENGTH_BYTES), "little")
    if not 2 <= length <= min(MOST_HEADER_BYTES, source.size):
        return False
    return source.at(LENGTH_BYTES, 1) == b"{" and b"datastates_metadata" in source.at(LENGTH_BYTES, length)


def check_datastates(source: Source, _level: Level) -> Checked:
    """Judge one file by its size and by the blocks that the file system gave it."""
    length = int.from_bytes(source.at(0, LENGTH_BYTES), "little")
    try:
        header: dict[str, Any] = json.loads(source.at(LENGTH_BYTES, length))
        end = max((entry["data_offsets"][1] for entry in header.values() if "data_offsets" in entry), default=0)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        return Checked((corrupt(f"its header cannot be parsed: {error}"),))
    if not isinstance(end, int) or LENGTH_BYTES + length + end > source.size:
        return Checked((incomplete(f"truncated: {source.size} bytes, and its tensors need more"),))
    if os.fstat(source.descriptor).st_blocks * 512 < source.size:
        return Checked((incomplete("it has holes: its tensors were not all written"),))
    return Checked()

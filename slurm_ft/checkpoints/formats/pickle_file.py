"""Plain pickles, such as Accelerate's `random_states_0.pkl`: whole if the stream reaches its end. No checksum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Level, incomplete
from . import stub_pickle
from .source import Checked

if TYPE_CHECKING:
    from .source import Source

STOP = b"."


def is_pickle(start: bytes) -> bool:
    """Tell whether the bytes begin a pickle of protocol 2 to 5."""
    return len(start) >= 2 and start[0] == 0x80 and 2 <= start[1] <= 5


def check_pickle(source: Source, level: Level) -> Checked:
    """Judge a pickle; from the structural level on by following it, which executes nothing."""
    if source.at(source.size - 1, 1) != STOP:
        return Checked((incomplete("truncated: its pickle has no end"),))
    if level > Level.QUICK and source.size <= stub_pickle.MOST_PICKLE_BYTES:
        try:
            stub_pickle.load(source.at(0, source.size))
        except stub_pickle.OpaqueError as error:
            if "truncated" in str(error) or "Ran out of input" in str(error):
                return Checked((incomplete("truncated: its pickle ends early"),))
    return Checked()

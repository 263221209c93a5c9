"""Are the numbers of a tensor numbers? A saved NaN trains on for ever; zeros are what a lost write leaves.

In every IEEE format NaN and infinity are the patterns from one upwards, in each half of the range. So the greatest
pattern as a signed integer, and the greatest as an unsigned one, tell; numpy finds both at memory speed. Without numpy
the top byte of each number is looked for, which is exact enough to know where to look closer.
"""

from __future__ import annotations

import struct
from enum import Enum
from types import ModuleType
from typing import NamedTuple

# dtype -> (bytes, the pattern of +infinity). All patterns above it are NaN.
FLOATS = {
    "F64": (8, 0x7FF0_0000_0000_0000),
    "F32": (4, 0x7F80_0000),
    "BF16": (2, 0x7F80),
    "F16": (2, 0x7C00),
    "F8_E5M2": (1, 0x7C),
}
INTEGERS = {8: "Q", 4: "I", 2: "H", 1: "B"}


class Odd(Enum):
    """What is wrong with a stretch of numbers."""

    NOTHING = ""
    INFINITE = "infinite values"
    NAN = "NaN"


class Look(NamedTuple):
    """What was seen in a stretch."""

    odd: Odd
    zero: bool  # every byte is 0
    zero_end: bool  # the last bytes are


def look(content: memoryview, dtype: str) -> Look:
    """Look at a stretch of a tensor; integers and unknown dtypes are only compared with zero."""
    zero, zero_end = _all_zero(content), not any(content[-64:])
    if zero or dtype not in FLOATS:
        return Look(Odd.NOTHING, zero, zero_end)
    size, infinity = FLOATS[dtype]
    content = content[: len(content) // size * size]
    numpy = _numpy()
    odd = _with_numpy(numpy, content, size, infinity) if numpy else _without(content, size, infinity)
    return Look(odd, zero, zero_end)


def _all_zero(content: memoryview) -> bool:
    """Stops at the first other byte, so that it costs nothing where there is one."""
    return not any(content[:64]) and bytes(content).count(0) == len(content)


def _numpy() -> ModuleType | None:
    try:
        import numpy  # noqa: PLC0415 - optional, and slow to import where nothing is scanned
    except ImportError:
        return None
    return numpy


def _with_numpy(numpy: ModuleType, content: memoryview, size: int, infinity: int) -> Odd:
    top = 1 << (8 * size - 1)
    positive = int(numpy.frombuffer(content, f"<i{size}").max(initial=0))
    negative = int(numpy.frombuffer(content, f"<u{size}").max(initial=0)) - top
    return _odd(max(positive, negative), infinity)


def _without(content: memoryview, size: int, infinity: int) -> Odd:
    high = bytes(content)[size - 1 :: size]
    first = infinity >> (8 * (size - 1))
    if not any(byte in high for byte in (*range(first, 0x80), *range(first | 0x80, 0x100))):
        return Odd.NOTHING
    mask = (1 << (8 * size - 1)) - 1
    return _odd(max(number & mask for (number,) in struct.iter_unpack(f"<{INTEGERS[size]}", content)), infinity)


def _odd(greatest: int, infinity: int) -> Odd:
    if greatest > infinity:
        return Odd.NAN
    return Odd.INFINITE if greatest == infinity else Odd.NOTHING

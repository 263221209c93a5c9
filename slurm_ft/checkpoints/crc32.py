"""CRC-32 as zip has it, by the fastest there is here: ISA-L computes it at the memory's speed, zlib at a tenth of that.

isal is optional: a training's Python may not have it, and there is none for other processors than x86 and ARM.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]

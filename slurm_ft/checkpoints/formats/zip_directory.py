"""The directory of a zip archive as `torch.save` writes it, read without trusting a number in it.

Python's `zipfile` holds a directory of any size in memory, accepts compressed records and takes a gap in the middle
for a longer prefix. torch stores records uncompressed, in order and without a comment; anything else is damage.
Format: PKWARE APPNOTE.TXT 4.3; torch writes zip64 records (caffe2/serialize/inline_container.cc).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..finding import corrupt, incomplete
from .source import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .source import Source

END = struct.Struct("<4s4H2LH")
END_64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR_64 = struct.Struct("<4sLQL")
ENTRY = struct.Struct("<4s4B4HL2L5H2L")
LOCAL = struct.Struct("<4s2B4HL2L2H")
MOST_DIRECTORY_BYTES = 64 << 20  # some 600,000 records
UNKNOWN_32 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Record:
    """One stored record. `data` is where its bytes begin in the file."""

    name: str
    crc: int
    size: int  # bytes
    header: int  # offset of its own header in the file


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip archive that lies at `start` in its file."""

    start: int
    records: tuple[Record, ...]

    @property
    def has_checksums(self) -> bool:
        """False if every CRC field is 0: saved with `torch.serialization.set_crc32_options(False)`."""
        return any(record.crc for record in self.records if record.size)

    def record(self, ending: str) -> Record | None:
        """Return the record whose name ends so, as `/data.pkl`; torch puts a directory's name before it."""
        return next((record for record in self.records if record.name.endswith(ending)), None)


def read_archive(source: Source, start: int = 0, length: int | None = None) -> Archive:
    """Read the directory of the archive in that part of the file. Raises DamagedError."""
    end = source.size if length is None else start + length
    offset, size, count = _directory(source, start, end)
    content = source.at(offset, size)
    if len(content) != size:
        raise DamagedError(incomplete("truncated: the archive's directory ends early"))
    records = tuple(_records(content, start, offset))
    if len(records) != count:
        raise DamagedError(corrupt(f"damaged archive: {len(records)} records where its end says {count}"))
    return Archive(start, records)


def data_offset(source: Source, record: Record) -> int:
    """Return where the record's bytes begin, after comparing its own header with the directory."""
    content = source.at(record.header, LOCAL.size)
    if len(content) < LOCAL.size or content[:4] != b"PK\3\4":
        raise DamagedError(corrupt(f"damaged archive: no record at the place of {record.name}"))
    fields = LOCAL.unpack(content)
    name = source.at(record.header + LOCAL.size, fields[-2])
    if name != record.name.encode("utf-8", "surrogateescape"):
        raise DamagedError(corrupt(f"damaged archive: another record at the place of {record.name}"))
    return record.header + LOCAL.size + int(fields[-2]) + int(fields[-1])


def _directory(source: Source, start: int, end: int) -> tuple[int, int, int]:
    """Return offset in the file, size and number of records, from the end record (the zip64 one if there is one)."""
    place = end - END.size
    content = source.at(place, END.size) if place >= start else b""
    if content[:4] != b"PK\5\6":
        raise DamagedError(incomplete("truncated: the archive has no end record"))
    _, _, _, _, count, size, offset, _ = END.unpack(content)
    locator = source.at(place - LOCATOR_64.size, LOCATOR_64.size) if place - LOCATOR_64.size >= start else b""
    if locator[:4] == b"PK\6\7":
        place = start + LOCATOR_64.unpack(locator)[2]
        content = source.at(place, END_64.size)
        if content[:4] != b"PK\6\6" or len(content) != END_64.size or place >= end:
            raise DamagedError(corrupt("damaged archive: its zip64 end record is missing"))
        count, size, offset = END_64.unpack(content)[-3:]
    if size > MOST_DIRECTORY_BYTES:
        raise DamagedError(corrupt("damaged archive: its directory is larger than any torch writes"))
    if start + offset + size != place:
        raise DamagedError(corrupt("damaged archive: bytes are missing or too many in the middle"))
    return start + offset, size, count


def _records(content: bytes, start: int, limit: int) -> Iterator[Record]:
    place = 0
    while place < len(content):
        if len(content) - place < ENTRY.size or content[place : place + 4] != b"PK\1\2":
            raise DamagedError(corrupt("damaged archive: its directory is broken"))
        fields = ENTRY.unpack_from(content, place)
        method, crc, stored, size = fields[6], fields[9], fields[10], fields[11]
        name_length, extra_length, comment_length = fields[12:15]
        place += ENTRY.size
        name = content[place : place + name_length].decode("utf-8", "surrogateescape")
        extra = content[place + name_length : place + name_length + extra_length]
        size, stored, header = _wide(extra, size, stored, fields[-1])
        if method or size != stored:
            raise DamagedError(corrupt(f"damaged archive: record {name} is not stored as torch stores"))
        if start + header + LOCAL.size + size > limit:
            raise DamagedError(corrupt(f"damaged archive: record {name} points outside the file"))
        yield Record(name, crc, size, start + header)
        place += name_length + extra_length + comment_length


def _wide(extra: bytes, size: int, stored: int, header: int) -> tuple[int, int, int]:
    """Replace the 32-bit numbers that say "see zip64" by those of the extra field with the tag 1."""
    place = 0
    while place + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, place)
        if tag == 1:
            numbers = iter(struct.unpack_from(f"<{length // 8}Q", extra[: place + 4 + length], place + 4))
            return tuple(  # type: ignore[return-value]
                next(numbers, number) if number == UNKNOWN_32 else number for number in (size, stored, header)
            )
        place += 4 + length
    return size, stored, header

"""Rows of text as a table: aligned, fitted to a terminal, or with a delimiter for programs. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

NOTHING = "-"  # an empty cell, so that columns can be counted
CUT = "+"  # ends what was cut, as in sacct
GAP = "  "
DELIMITER = "|"
# What would break a line of `--parsable` apart, as in a URL: reversible, and `cut -d '|'` still counts right.
_ESCAPED = {ord(character): f"%{ord(character):02X}" for character in "%|"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column with its cells. `least` is how narrow it may be cut; those with the smallest `keep` are dropped first.

    `width` is the user's own choice: exactly so wide. `styles` are one ANSI code a cell, or none at all.
    """

    header: str
    cells: Sequence[str]
    least: int = 0  # 0: never cut
    keep: int = 0
    width: int = 0  # 0: as wide as its widest cell
    styles: Sequence[str] = ()

    @property
    def natural(self) -> int:
        """As wide as it would like to be."""
        return self.width or max(width(self.header), _widest(self.cells))

    @property
    def narrowest(self) -> int:
        """As narrow as it may be."""
        return min(self.natural, self.least) if self.least and not self.width else self.natural


@dataclass(frozen=True, slots=True)
class Screen:
    """What the output goes to. `room` is its width in columns; None for a file or a pipe, where nothing is cut, wrapped
    or coloured."""

    room: int | None = None
    colour: bool = False

    def paint(self, text: str, style: str) -> str:
        """`text` with an ANSI code around it, or as it is."""
        return f"\x1b[{style}m{text}\x1b[0m" if style and self.colour else text


PAPER = Screen()
BOLD = "1"


@dataclass(frozen=True, slots=True)
class Fitted:
    """Lines that fit, and the headers of the columns for which there was no room."""

    lines: tuple[str, ...]
    dropped: tuple[str, ...] = ()


def of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table in full width."""
    cells = zip(*(map(shown, row) for row in rows), strict=True) if rows else [()] * len(header)
    columns = [Column(name, tuple(column)) for name, column in zip(header, cells, strict=True)]
    return "\n".join(fit(columns).lines)


def fit(columns: Sequence[Column], screen: Screen = PAPER, *, header: bool = True) -> Fitted:
    """Columns two blanks apart, without trailing blanks, no wider than the screen.

    The cells are printable (`shown`). Columns that find no room even at their narrowest are dropped whole.
    """
    kept = _kept(columns, screen.room)
    widths = _widths(kept, screen.room)
    padded = [_padded(column, room, screen) for column, room in zip(kept, widths, strict=True)]
    rows = [GAP.join(cells).rstrip() for cells in zip(*padded, strict=True)]
    if header and kept:
        names = (_filled(column.header, room, BOLD, screen) for column, room in zip(kept, widths, strict=True))
        rows.insert(0, GAP.join(names).rstrip())
    lines = tuple(rows)
    there = {column.header for column in kept}
    return Fitted(lines, tuple(column.header for column in columns if column.header not in there))


def delimited(columns: Sequence[Column], *, header: bool = True) -> list[str]:
    """One line a row, without padding; an empty cell stays empty, and `|` and `%` are written `%7C` and `%25`."""
    rows = zip(*(column.cells for column in columns), strict=True)
    lines = [DELIMITER.join(escaped(cell) for cell in row) for row in rows]
    return [DELIMITER.join(column.header for column in columns), *lines] if header else lines


def escaped(cell: str) -> str:
    """A cell that holds neither the delimiter nor a control character; `urllib.parse.unquote` undoes it."""
    text = cell.translate(_ESCAPED)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _percent(one) for one in text)


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))


def printable(text: str) -> str:
    """Names and evidence come from users: no control character reaches the terminal."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def all_printable(texts: Sequence[str]) -> Sequence[str]:
    """The same for many; nearly always there is nothing to do."""
    return texts if "".join(texts).isprintable() else [printable(text) for text in texts]


def shown(cell: str) -> str:
    """A cell for people."""
    return printable(cell) or NOTHING


def width(text: str) -> int:
    """Columns of a terminal: a Chinese character takes two, a combining one none."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, room: int) -> str:
    """`text` in at most `room` columns; what was cut ends with a plus."""
    if width(text) <= room:
        return text
    kept, used = "", 0
    for character in text:
        used += _columns_of(character)
        if used > room - len(CUT):
            break
        kept += character
    return (kept + CUT)[:room] if room else ""


def _padded(column: Column, room: int, screen: Screen) -> list[str]:
    """The cells of a column, all of one width. Ten thousand of them are padded by Python itself where that will do."""
    if not (screen.colour and column.styles) and _plain(column.cells) and _widest(column.cells) <= room:
        return [cell.ljust(room) for cell in column.cells]
    styles = column.styles or ("",) * len(column.cells)
    return [_filled(cell, room, style, screen) for cell, style in zip(column.cells, styles, strict=True)]


def _filled(text: str, room: int, style: str, screen: Screen) -> str:
    fitted = cut(text, room)
    return screen.paint(fitted, style) + " " * (room - width(fitted))


def _plain(cells: Sequence[str]) -> bool:
    return "".join(cells).isascii()


def _widest(cells: Sequence[str]) -> int:
    return max(map(len if _plain(cells) else width, cells), default=0)


def _kept(columns: Sequence[Column], room: int | None) -> list[Column]:
    """As many as there is room for at their narrowest; the first one always, however narrow the terminal."""
    kept = list(columns)
    while room is not None and len(kept) > 1 and _total([column.narrowest for column in kept]) > room:
        least = min(kept[1:], key=lambda column: column.keep)
        kept.remove(least)
    if room is not None and len(kept) == 1:
        return [replace(kept[0], width=min(kept[0].natural, room))]
    return kept


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _widths(columns: Sequence[Column], room: int | None) -> list[int]:
    """The least important ones are cut first, each as far as it may."""
    widths = [column.natural for column in columns]
    excess = 0 if room is None else _total(widths) - room
    for at in sorted(range(len(columns)), key=lambda at: columns[at].keep):
        given = min(max(excess, 0), widths[at] - columns[at].narrowest)
        widths[at] -= given
        excess -= given
    return widths

"""The status as a table: one row a job. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_ft.status import table as tables
from slurm_ft.status.fields import ALL, DEFAULT, Field
from slurm_ft.status.table import PAPER, Column, Fitted, Screen
from slurm_ft.status.view import JobView

CELL_LIMIT = 40  # of a column that nobody asked for: Slurm spells some reasons out, and users their job names


@dataclass(frozen=True, slots=True)
class Chosen:
    """A field that was asked for. `width` cuts and pads it; 0: as wide as its cells."""

    field: Field
    width: int = 0
    limit: int = 0  # cut at so many columns, and not padded


BY_DEFAULT = tuple(Chosen(ALL[name], limit=0 if name == "state" else CELL_LIMIT) for name in DEFAULT)


def table(
    views: Sequence[JobView],
    now: float,
    chosen: Sequence[Chosen] = BY_DEFAULT,
    screen: Screen = PAPER,
    *,
    header: bool = True,
) -> Fitted:
    """Aligned columns for people, see tables.fit. An empty cell is a dash."""
    return tables.fit([_column(one, views, now) for one in chosen], screen, header=header)


def delimited(views: Sequence[JobView], now: float, chosen: Sequence[Chosen], *, header: bool = True) -> list[str]:
    """One line a job for programs, see tables.delimited. Nothing is cut but what was given a width."""
    columns = [
        Column(one.field.header, _cut([one.field.text(view, now) for view in views], one.width)) for one in chosen
    ]
    return tables.delimited(columns, header=header)


def _cut(texts: Sequence[str], width: int) -> Sequence[str]:
    """A letter takes two columns at most."""
    if not width or max(map(len, texts), default=0) * 2 <= width:
        return texts
    return [tables.cut(text, width) for text in texts]


def _column(one: Chosen, views: Sequence[JobView], now: float) -> Column:
    field = one.field
    texts = [field.text(view, now) for view in views]
    cells = _cut([text or tables.NOTHING for text in tables.all_printable(texts)], one.limit)
    styles = [field.style(view) for view in views] if field.style else ()
    return Column(field.header, cells, field.least, field.keep, one.width, styles)

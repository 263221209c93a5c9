"""An entry of the output directory whose name says that it is a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from .layout import Layout


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that was found, not yet judged."""

    step: int
    path: Path  # absolute
    layout: Layout
    owner: Path  # the output directory: links may not leave it

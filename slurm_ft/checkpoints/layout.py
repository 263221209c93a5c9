"""How a framework lays out its checkpoints: which entries of the output directory are some, and how each is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurm_ft.checkpoints.finding import Finding


@dataclass(frozen=True, slots=True)
class Layout:
    """One framework's layout.

    `step_of` returns the step in an entry's name, or None for an entry that is no finished checkpoint: other files
    and temporary names. `check` judges a candidate by its content and raises UnreadableCheckpointError if it cannot.
    """

    name: str  # what `--framework` takes
    step_of: Callable[[str], int | None]
    check: Callable[[Path], Finding]

"""One row of the tables that say what an event without a code means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from slurm_ft.model import Certainty, Scope


class Blame(str, Enum):
    """What one event says about who ended the job."""

    HARDWARE = "hardware"
    APPLICATION = "application"
    AMBIGUOUS = "ambiguous"
    NOBODY = "nobody"  # a consequence of something else, or a notice: explains no death


@dataclass(frozen=True, slots=True)
class Fact:
    """One row. `what` completes a sentence: "<what> is a hardware fault". `drains`: unusable before an admin acts."""

    blame: Blame
    what: str
    drains: bool = False
    scope: Scope = Scope.GPU
    certainty: Certainty = Certainty.CERTAIN

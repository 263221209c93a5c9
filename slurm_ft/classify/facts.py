"""What an event without a code says: name -> Fact, one table for each kind of source."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from slurm_ft.model import Certainty, EventKind, Scope

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping


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


OFF_BUS = "off_bus"
UNKNOWN = Fact(Blame.AMBIGUOUS, "an event that the tables do not know")

FACTS: Mapping[EventKind, Mapping[str, Fact]] = {
    EventKind.OFF_BUS: {
        OFF_BUS: Fact(Blame.HARDWARE, "the driver's message that the GPU has fallen off the bus", drains=True),
    },
}


def fact_of(kind: EventKind, name: str) -> Fact:
    """The row of a named event. One that no table knows convicts nobody."""
    return FACTS.get(kind, {}).get(name, UNKNOWN)

"""What an event without a code says: name -> Fact, one table for each kind of source."""

from __future__ import annotations

from slurm_ft.classify.fact import Blame, Fact
from slurm_ft.classify.gpu_state_facts import GPU_STATE_FACTS
from slurm_ft.classify.gpu_text_facts import GPU_TEXT_FACTS
from slurm_ft.classify.host_facts import HOST_FACTS
from slurm_ft.classify.output_facts import OUTPUT_FACTS
from slurm_ft.classify.slurm_facts import SLURM_FACTS
from slurm_ft.model import EventKind

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FACTS", "OFF_BUS", "UNKNOWN", "Blame", "Fact", "fact_of"]

OFF_BUS = "off_bus"
UNKNOWN = Fact(Blame.AMBIGUOUS, "an event that the tables do not know")

FACTS: Mapping[EventKind, Mapping[str, Fact]] = {
    EventKind.OFF_BUS: {
        OFF_BUS: Fact(Blame.HARDWARE, "the driver's message that the GPU has fallen off the bus", drains=True),
    },
    EventKind.HOST: HOST_FACTS,
    EventKind.GPU_STATE: {**GPU_TEXT_FACTS, **GPU_STATE_FACTS},
    EventKind.OUTPUT: OUTPUT_FACTS,
    EventKind.SLURM: SLURM_FACTS,
}


def fact_of(kind: EventKind, name: str) -> Fact:
    """The row of a named event. One that no table knows convicts nobody."""
    return FACTS.get(kind, {}).get(name, UNKNOWN)

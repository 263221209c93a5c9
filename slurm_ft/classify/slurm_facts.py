"""What Slurm itself says about the end of a job (its state, its controller's log): name -> Fact."""

from __future__ import annotations

from slurm_ft.classify.fact import Blame, Fact
from slurm_ft.model import Certainty, Scope


def _ending(what: str) -> Fact:
    return Fact(Blame.NOBODY, what, scope=Scope.JOB)


# The node is DOWN in Slurm already when it has failed: there is nothing left to drain.
SLURM_FACTS = {
    "node_fail": Fact(Blame.HARDWARE, "the loss of the node", scope=Scope.NODE, certainty=Certainty.LIKELY),
    "out_of_memory": Fact(Blame.APPLICATION, "Slurm's memory limit", scope=Scope.JOB),
    "time_limit": _ending("the time limit"),
    "cancelled": _ending("a cancellation"),
    "preempted": _ending("a preemption"),
}

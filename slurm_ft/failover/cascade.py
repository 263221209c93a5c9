"""Whose drain is to be lifted after a job of several nodes ended. Pure.

Each node drains itself on what it sees. A node that sees nothing but the far end of a broken link is in good health:
the fault is the root node's. If every node of the job blames itself, the root is none of them, and all such drains go.
A node with a fault of its own, or whose driver asks for a reset, stays drained whoever is to blame: nothing can run
there.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_ft.failover.policy import all_blame_themselves, faults_of, primary
from slurm_ft.model import JobEnd, NodeVerdict


def wrongly_drained(end: JobEnd, verdicts: Sequence[NodeVerdict]) -> tuple[str, ...]:
    """The nodes whose only faults in this attempt are at a link and whose root is elsewhere, by name."""
    faults = faults_of(end, verdicts)
    causes = primary(faults)
    if not causes:
        return ()
    roots = set() if all_blame_themselves(end, causes) else {causes[0].node}
    own = {fault.node for fault in faults if not fault.at_link}
    return tuple(sorted({fault.node for fault in faults} - own - roots))

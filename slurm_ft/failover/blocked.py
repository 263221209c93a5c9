"""Why Slurm cannot start a job that waits, and what an admin can do about it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_ft.slurm import nodelist
from slurm_ft.slurm.protocol import JobRecord, NodeRecord

# How Slurm's reasons begin when no node that is free by and by will do: somebody has to act.
REASONS = (
    "BadConstraints",
    "ReqNodeNotAvail",
    "Nodes required for job are DOWN",
    "ReservationDeleted",
    "PartitionDown",
    "PartitionInactive",
    "PartitionNodeLimit",
)


def is_blocked(job: JobRecord) -> bool:
    """Whether the job waits for something that does not come by itself."""
    return job.state == "PENDING" and job.reason.startswith(REASONS)


def why(job: JobRecord, nodes: Sequence[NodeRecord], excluded: Sequence[str]) -> str:
    """One line for a blocked job, else "". `nodes` are the cluster's, `excluded` those that failovers excluded."""
    if not is_blocked(job):
        return ""
    unusable = {node.name: node for node in nodes if node.draining}
    required = [name for name in nodelist.expand(job.required_nodes) if name in unusable]
    if required:
        what = f"its --nodelist requires {nodelist.fold(required)}, out of service ({unusable[required[0]].reason})"
        return f"cannot start: {what}; return the node, or change ReqNodeList with scontrol update"
    where = f"reservation {job.reservation}" if job.reservation else f"partition {job.partition}"
    bad = f", excluded after a fault: {nodelist.fold(excluded)}" if excluded else ""
    out = f", out of service: {nodelist.fold(sorted(unusable))}" if unusable else ""
    return f"cannot start: {where} has not the nodes it needs ({job.reason}{out}{bad}); return a node to service"

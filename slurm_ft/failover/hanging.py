"""`decide_hanging()`: whether a job that still runs on a broken GPU is to be ended. Pure: no clock, no I/O.

The question is the controller's own: were the attempt to end now, killed, would it be started again elsewhere? Only
then it is ended. A job that did not ask for failover, may not be requeued, or has its failovers spent runs on: to end
it would win nobody anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_ft.failover import claim, ledger
from slurm_ft.failover.policy import decide
from slurm_ft.failover.restraint import Surroundings, restraints
from slurm_ft.model import Decision, ExitStatus, JobEnd, JobKey, Ledger, NodeVerdict
from slurm_ft.slurm import nodelist
from slurm_ft.slurm.protocol import JobRecord

KILLED = ExitStatus(0, 9)


def decide_hanging(
    key: JobKey, job: JobRecord, verdicts: Sequence[NodeVerdict], surroundings: Surroundings
) -> Decision:
    """What would be decided if the attempt `key` of the running `job` ended now. REQUEUE: end it; NONE: leave it.

    `verdicts` are those of all its nodes so far.
    """
    return decide(_end(key, job, surroundings), verdicts, claim.spent(job.comment, job.admin_comment))


def runs(key: JobKey, job: JobRecord | None) -> bool:
    """Whether this very attempt still runs."""
    return job is not None and job.state == "RUNNING" and job.restarts == key.attempt


def _end(key: JobKey, job: JobRecord, surroundings: Surroundings) -> JobEnd:
    config, now = surroundings.config, surroundings.now
    history = ledger.read(job.admin_comment) or Ledger("")
    return JobEnd(
        key=key,
        exit=KILLED,
        reason=job.reason,
        nodes=job.nodes,
        node_names=nodelist.expand(job.nodes),
        down_nodes=(),
        silent_nodes=(),
        started=job.started,
        ended=now,
        restarts_now=job.restarts,
        opted_in=claim.opted_in(job, config),
        requeueable=job.requeue and job.batch,
        limit=claim.limit(job.comment, config),
        restraints=restraints(job, key.attempt, history, surroundings),
    )

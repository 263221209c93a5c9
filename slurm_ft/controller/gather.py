"""Look, before anything is judged: wait for the node epilogs and read what the nodes left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from slurm_ft.config import Config, FailedStep
from slurm_ft.errors import SlurmCommandError
from slurm_ft.failover import claim, node_record, restraint
from slurm_ft.model import Domain, ExitStatus, JobEnd, JobKey, NodeVerdict
from slurm_ft.slurm import environment, nodelist
from slurm_ft.slurm.components import components
from slurm_ft.slurm.protocol import JobRecord, NodeRecord, Slurm

POLL = 0.05  # seconds between looks at first
POLL_MAX = 0.5
DEATH_CHECK = 2.0  # seconds of waiting after which we ask whether the missing nodes are dead
NOT_KNOWN = "?"  # stands for the nodes when Slurm does not say which


@dataclass(frozen=True, slots=True)
class Gathered:
    """The end of the attempt, the job as it stands now, and what its nodes left."""

    end: JobEnd
    job: JobRecord
    verdicts: tuple[NodeVerdict, ...]
    nodes: tuple[NodeRecord, ...]
    fleet: tuple[NodeRecord, ...] = ()  # all of the cluster's, where hardware may be at fault


def wait_for_node_epilogs(
    slurm: Slurm, address: str, bound: float, clock: Callable[[], float] = time.monotonic
) -> tuple[str, ...]:
    """Wait until every living node of a COMPLETING job has ended its epilog; return those that had not in time.

    While EpilogSlurmctld runs, the job stays COMPLETING and its nodelist holds only the nodes whose epilog has not
    ended (measured on 22.05 to 26.05). A dead node never answers. `bound` is in seconds.
    """
    start, pause = clock(), POLL
    while True:
        left = _still_in_epilog(slurm, address)
        waited = clock() - start
        if not left or (waited >= DEATH_CHECK and left != NOT_KNOWN and _all_dead(slurm, left)):
            return ()
        if waited >= bound:
            return nodelist.expand(left)
        time.sleep(min(pause, max(bound - waited, 0)))
        pause = min(pause * 1.5, POLL_MAX)


def _still_in_epilog(slurm: Slurm, address: str) -> str:
    try:
        return slurm.job_nodes(address)
    except SlurmCommandError:
        return NOT_KNOWN  # a busy controller is asked again until the bound


def _all_dead(slurm: Slurm, left: str) -> bool:
    try:
        nodes = slurm.nodes(left)
    except SlurmCommandError:
        return False
    return bool(nodes) and all(node.down for node in nodes)


@dataclass(frozen=True, slots=True)
class Ended:
    """Which attempt of which job has ended, and the job as it stood at the first look."""

    key: JobKey
    job: JobRecord
    requeued: bool  # somebody has requeued it already
    expedited: bool = False  # Slurm itself requeues it, after this failure
    silent: tuple[str, ...] = ()  # nodes whose epilog had not ended within the bound


def ended_attempt(slurm: Slurm, key: JobKey) -> Ended | None:
    """The attempt that a hook was started for; None when Slurm has forgotten the job. Raises SlurmCommandError.

    Has Slurm requeued it already? After a node failure the environment has the ended attempt's restart count, Slurm's
    record the next one's. After `scontrol requeue` and a preemption both have the next one's, and the COMPLETING job no
    end (measured on 22.05, 24.11 and 26.05).
    """
    job = slurm.job(key.address)
    if job is None:
        return None
    requeued = job.ended is None or job.restarts > key.attempt
    return Ended(replace(key, attempt=job.restarts - requeued), job, requeued)


def wait_out_epilogs(slurm: Slurm, config: Config, ended: Ended) -> Ended:
    """Wait until every living node has had its say. Once the job has left COMPLETING, there is none to wait for (and
    its NodeList is that of the whole job)."""
    if ended.job.state != "COMPLETING":
        return ended
    return replace(ended, silent=wait_for_node_epilogs(slurm, ended.key.address, config.node_epilog_wait))


def wait_for_requeue(slurm: Slurm, config: Config, ended: Ended) -> Ended:
    """The same for an expedited job whose controller hook has returned: every living node has had its say once Slurm
    has requeued it, and it may run again within a tenth of a second. Raises SlurmCommandError."""
    deadline = time.monotonic() + config.node_epilog_wait
    while time.monotonic() < deadline:
        job = slurm.job(ended.key.address)
        if job is None or job.state != "COMPLETING" or job.restarts > ended.key.attempt:
            break
        time.sleep(POLL)
    return ended


def gather(slurm: Slurm, config: Config, environ: Mapping[str, str], ended: Ended, now: float) -> Gathered:
    """Everything `decide` needs. Raises SlurmCommandError."""
    key, before = ended.key, ended.job
    job = slurm.job(key.address) or before
    nodes = _nodes(environ, job)
    records = tuple(slurm.nodes(nodes)) if nodes else ()  # an empty list would mean every node of the cluster
    end = JobEnd(
        key=key,
        exit=environment.exit_status(environ),
        reason=before.reason,
        nodes=nodes,
        node_names=nodelist.expand(nodes),
        down_nodes=tuple(node.name for node in records if node.down),
        drained_nodes=tuple(node.name for node in records if "drain" in node.states),
        step=restraint.step_of(job.comment, key.attempt),
        saved=restraint.saved_of(job.comment, key.attempt),
        silent_nodes=ended.silent,
        started=None if ended.requeued else before.started,
        ended=now,
        restarts_now=job.restarts,
        opted_in=claim.opted_in(job, config),
        requeueable=job.requeue and job.batch,
        limit=claim.limit(job.comment, config),
        expedited=ended.expedited,
        failed_step=_failed_step(environ, before),
        step_fails_job=config.failed_step is FailedStep.FAILOVER,
        required_nodes=nodelist.expand(before.required_nodes),
        component_ids=tuple(part.raw_id for part in components(slurm, job)) if job.het_leader else (),
    )
    verdicts = tuple(
        verdict for node in records for verdict in node_record.left_on(node.name, node.reason, node.comment)
    )
    suspicious = end.down_nodes or any(verdict.domain is Domain.HARDWARE for verdict in verdicts)
    return Gathered(end, job, verdicts, records, tuple(slurm.nodes()) if suspicious else ())


def _failed_step(environ: Mapping[str, str], job: JobRecord) -> ExitStatus | None:
    """Of a job that ended well. One that was cancelled or timed out has `0:0` in the environment too, but a signal in
    its record (measured on 22.05); its steps were ended with it."""
    ended_well = (job.exit_code, job.exit_signal) == (0, 0) and environment.exit_status(environ).success
    return environment.failed_step(environ) if ended_well else None


def _nodes(environ: Mapping[str, str], job: JobRecord) -> str:
    """The attempt's nodes. A job with --no-kill loses a dead one from its list; if that one ran the batch script, the
    job died of it (measured on 22.05: it ends `0:9`)."""
    nodes = environment.nodes(environ)
    return nodelist.merge(nodes, job.batch_host) if nodes and job.batch_host else nodes

"""The only code that changes the cluster: drain a node, requeue a job with exclusions, let it start at once."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from slurm_ft.errors import SlurmCommandError
from slurm_ft.failover import brake, comment_tag, hanging, ledger, node_record, resume_tag
from slurm_ft.failover.brake import Brake, Kind
from slurm_ft.failover.comment_tag import Tag
from slurm_ft.failover.resume_tag import ResumeMark
from slurm_ft.model import Decision, JobKey, Ledger, NodeAction, NodeVerdict
from slurm_ft.slurm import nodelist
from slurm_ft.slurm.components import components
from slurm_ft.slurm.protocol import JobRecord, JobUpdate, NodeRecord, Slurm

COMMENT_FULL = "the job's Comment has no room for the tag: the count stands in AdminComment alone"
LAUNCH_HOLD = "launch failed requeued held"  # Slurm's reason after a failed Prolog, unless nohold_on_prolog_fail is set
# Slurm 22.05 refuses all updates of a --no-kill job whose node died, for five seconds each, while it is COMPLETING.
NOT_NOW = "Job update not available right now"


def report_fault(slurm: Slurm, verdict: NodeVerdict, action: NodeAction) -> str:
    """Leave the node's verdict for the controller; drain the node when `action` says so. Returns what was done.

    A node that somebody else has drained keeps that Reason, and one that needs no drain gets none: the verdict then
    stands in the node's Comment. Raises SlurmCommandError.
    """
    node = next(iter(slurm.nodes(verdict.node)), NodeRecord(verdict.node, frozenset(), "", ""))
    if action is NodeAction.DRAIN and not _drained_by_others(node):
        slurm.drain_node(verdict.node, _reason(node, verdict))
        return f"drained {verdict.node}"
    slurm.set_node_comment(verdict.node, node_record.add(node.comment, verdict))
    return f"noted in the Comment of {verdict.node}"


def _drained_by_others(node: NodeRecord) -> bool:
    return node.draining and bool(node.reason) and not node_record.is_ours(node.reason)


def _reason(node: NodeRecord, verdict: NodeVerdict) -> str:
    if node_record.is_ours(node.reason):
        return node_record.add(node.reason, verdict)
    before = f"{node_record.SEPARATOR}before: {node.reason}" if node.reason else ""
    return node_record.add("", verdict) + before


def erase_notes(slurm: Slurm, nodes: tuple[NodeRecord, ...], raw_id: int) -> None:
    """Take the job's verdicts out of the Comment of `nodes`, once they were read. Raises SlurmCommandError."""
    for node in nodes:
        if (comment := node_record.remove(node.comment, raw_id)) != node.comment:
            slurm.set_node_comment(node.name, comment)


def expire_notes(slurm: Slurm, nodes: Sequence[NodeRecord], now: float) -> list[str]:
    """Take verdicts that nobody fetched out of the nodes' Comments; returns what was done. Raises SlurmCommandError."""
    done = []
    for node in nodes:
        if (comment := node_record.without_stale(node.comment, now)) != node.comment:
            slurm.set_node_comment(node.name, comment)
            done.append(f"node {node.name}: an old verdict is gone from its Comment")
    return done


def lift_drain(slurm: Slurm, name: str, key: JobKey) -> str:
    """Return a node to service whose only fault was the far end of a link (cascade.py). Returns what was done.

    Looks once more right before: a Reason that holds anything else, an admin's words or another job's fault, stays.
    Raises SlurmCommandError.
    """
    node = next(iter(slurm.nodes(name)), None)
    if node is None or not node_record.is_at_link_alone(node.reason, key.raw_id, key.attempt):
        return f"{name} stays as it is"
    slurm.resume_node(name)
    return f"returned {name} to service"


def put_on_brake(slurm: Slurm, nodes: Sequence[NodeRecord], mark: Brake) -> None:
    """Stop all failovers of the cluster, or with an `off` mark let them go on. Raises SlurmCommandError.

    `nodes` are all of the cluster's. Each command works by itself: one refused does not keep the others away.
    """
    refused: list[SlurmCommandError] = []
    carriers = brake.carriers(nodes)
    for node in carriers:
        try:
            slurm.set_node_comment(node.name, brake.write(node.comment, mark))
        except SlurmCommandError as error:
            refused.append(error)
    if refused and (mark.kind is Kind.OFF or len(refused) == len(carriers)):
        raise refused[0]


def undrain(slurm: Slurm, name: str) -> str:
    """Return a node to service that we drained. Looks once more right before: somebody may have drained it since.

    Returns what was done. Raises SlurmCommandError.
    """
    node = next(iter(slurm.nodes(name)), None)
    if node is None or not node_record.is_ours(node.reason):
        return f"{name} stays as it is: its Reason is not ours any more"
    slurm.resume_node(name)
    return f"returned {name} to service"


def requeue(slurm: Slurm, key: JobKey) -> None:
    """Requeue an ended attempt. Raises SlurmCommandError when it is not requeued after all.

    Look right before (progress.next_step): a requeue would revive a cancelled job, and kill a running attempt. It
    comes before the record: Slurm refuses every update of a job that ended and was not requeued (measured).
    """
    try:
        slurm.requeue(key.address)
    except SlurmCommandError:
        if not _requeued(slurm, key):  # a command whose answer was lost may have done its work
            raise


def _requeued(slurm: Slurm, key: JobKey) -> bool:
    job = slurm.job(key.address)
    return job is not None and job.restarts == key.attempt + 1


def record(slurm: Slurm, job: JobRecord, decision: Decision, history: Ledger) -> str:
    """Exclusions merged with the user's own, the tag, and the ledger of a requeued job; again does no harm.

    Each component of a het job keeps its user's own exclusions and avoids all bad nodes, since it might be given those
    of another; tag and ledger are the leader's. Its bare id would overwrite those of all components (measured).
    `history` holds the decided attempt already. Returns what is to be noted, or "". Raises SlurmFtError.
    """
    tag = Tag(max(decision.count, _tag_of(job).count), decision.limit, history.excluded, decision.cause)
    return _write_history(slurm, job, tag, history)


def expire_exclusions(slurm: Slurm, job: JobRecord, history: Ledger) -> str:
    """Let a pending job have those nodes again that are in its ledger and not in `history` any more (ledger.forgive).

    Returns what is to be noted, or "". Raises SlurmFtError.
    """
    return _write_history(slurm, job, replace(_tag_of(job), excluded=history.excluded), history)


def _write_history(slurm: Slurm, job: JobRecord, tag: Tag, history: Ledger) -> str:
    comment = comment_tag.write(job.comment, tag)
    before = ledger.read(job.admin_comment)
    expired = set(before.excluded if before else ()).difference(history.excluded)
    for part in components(slurm, job):
        update = JobUpdate(excluded_nodes=_excluded(slurm, part, history, expired))
        if part.address == job.address:
            update = replace(update, comment=comment, admin_comment=ledger.write(job.admin_comment, history))
        if update != JobUpdate():
            _write(slurm, part.address, update)
    return COMMENT_FULL if comment is None else ""


def exclude(slurm: Slurm, job: JobRecord, history: Ledger) -> None:
    """Add the exclusions of `history` to those of a pending job. Raises SlurmFtError."""
    for part in components(slurm, job):
        _write(slurm, part.address, JobUpdate(excluded_nodes=_excluded(slurm, part, history)))


def _excluded(slurm: Slurm, job: JobRecord, history: Ledger, expired: Collection[str] = ()) -> str | None:
    """The user's own and ours; None if that changes nothing for a job without any.

    A node that the user requires is not excluded: Slurm would never start the job again.
    """
    ours = set(history.excluded) - set(nodelist.expand(job.required_nodes))
    now = nodelist.expand(slurm.excluded_nodes(job.address))
    kept = [name for name in now if name not in expired]
    return nodelist.merge(nodelist.fold(kept), *sorted(ours)) or ("" if len(kept) < len(now) else None)


def _write(slurm: Slurm, address: str, update: JobUpdate) -> None:
    """All at once, or one by one if Slurm refuses that."""
    try:
        slurm.update_job(address, update)
    except SlurmCommandError as error:
        if NOT_NOW in error.output:
            raise
        _update_one_by_one(slurm, address, update)


def count(slurm: Slurm, job: JobRecord, history: Ledger, limit: int) -> str:
    """Ledger and tag of a job that runs again; Slurm takes no exclusions then.

    Returns what is to be noted, or "". Raises SlurmFtError.
    """
    cause = history.attempts[-1].cause if history.attempts else ""
    spent = max(history.count, _tag_of(job).count)
    comment = comment_tag.write(job.comment, Tag(spent, limit, history.excluded, cause)) if history.count else None
    slurm.update_job(job.address, JobUpdate(comment=comment, admin_comment=ledger.write(job.admin_comment, history)))
    return COMMENT_FULL if history.count and comment is None else ""


def _tag_of(job: JobRecord) -> Tag:
    return comment_tag.read(job.comment) or Tag()


def end_hanging(slurm: Slurm, key: JobKey) -> str:
    """Kill the batch script of an attempt that outlives a fatal fault, so that it fails and the hooks take over.

    Looks once more right before: another attempt of the job must not be hit. Raises SlurmCommandError.
    """
    job = slurm.job(key.address)
    if job is None or not hanging.runs(key, job):
        return "not ended: it has ended by itself"
    slurm.kill_batch_script(key.address)
    return "killed its batch script"


def note_resume(slurm: Slurm, address: str, mark: ResumeMark) -> bool:
    """Note in the job's Comment from which step this attempt resumes; the job's own user does it. Whether it was noted.

    It is not when the job is in another attempt by now, or when its Comment is too full. Raises SlurmCommandError.
    """
    job = slurm.job(address)
    if job is None or job.state != "RUNNING" or job.restarts != mark.attempt:
        return False
    comment = resume_tag.write(job.comment, mark)
    if comment is None or comment == job.comment:
        return comment is not None
    slurm.update_job(job.address, JobUpdate(comment=comment))
    return True


def _update_one_by_one(slurm: Slurm, address: str, update: JobUpdate) -> None:
    """Slurm takes an update whole or not at all: a node deleted meanwhile must not cost the count."""
    known = {node.name for node in slurm.nodes()}
    excluded = [name for name in nodelist.expand(update.excluded_nodes or "") if name in known]
    parts = (
        JobUpdate(admin_comment=update.admin_comment),
        JobUpdate(comment=update.comment),
        JobUpdate(excluded_nodes=nodelist.fold(excluded) or None),
    )
    refused: list[str] = []
    for part in parts:
        if part == JobUpdate():  # Slurm refuses an update that changes nothing
            continue
        try:
            slurm.update_job(address, part)
        except SlurmCommandError as error:
            refused.append(str(error))
    if refused:
        raise SlurmCommandError(f"update {address}", "failed in part", "; ".join(refused))


def let_start(slurm: Slurm, key: JobKey, job: JobRecord, *, expedited: bool = False, wait: float = 0) -> None:
    """Let a pending job start in `wait` seconds, not in Slurm's two minutes, and take a hold of Slurm's own away.

    Any other hold is somebody's wish. Slurm holds a job whose node refused to start it, and an `expedited` one when no
    node Epilog failed: none does on a node that needs no drain. `job` is what it looked like just now.
    Raises SlurmCommandError.
    """
    if job.reason == LAUNCH_HOLD or (expedited and job.state == "REQUEUE_HOLD"):
        slurm.release_hold(key.address)
    slurm.update_job(key.address, JobUpdate(start_now=True, start_in=math.ceil(wait)))


def drop_redundant_exclusions(slurm: Slurm, key: JobKey) -> tuple[str, ...]:
    """Take those of our exclusions from a job that Slurm finds no node for which change nothing: nodes out of service,
    which cannot run it anyway, and deleted ones. Returns their names. Raises SlurmFtError.

    Without them Slurm starts it when such a node returns. With them it may never look at the job again: at
    BadConstraints it sets the job's priority to 0, and an update of the exclusions takes that back (measured on 22.05).
    """
    job = slurm.job(key.address)
    history = ledger.read(job.admin_comment) if job else None
    if job is None or job.state != "PENDING" or history is None:
        return ()
    in_service = {node.name for node in slurm.nodes() if not node.draining}
    redundant = set(history.excluded) - in_service
    dropped: set[str] = set()
    for part in components(slurm, job) if redundant else ():
        excluded = nodelist.expand(slurm.excluded_nodes(part.address))
        if found := redundant.intersection(excluded):
            kept = nodelist.fold(name for name in excluded if name not in redundant)
            slurm.update_job(part.address, JobUpdate(excluded_nodes=kept))
            dropped |= found
    return tuple(sorted(dropped))

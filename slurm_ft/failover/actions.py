"""The only code that changes the cluster: drain a node, requeue a job with exclusions, let it start at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from slurm_ft.errors import SlurmCommandError, SlurmFtError
from slurm_ft.failover import comment_tag, hanging, ledger, node_record, resume_tag
from slurm_ft.failover.comment_tag import Tag
from slurm_ft.failover.resume_tag import ResumeMark
from slurm_ft.model import Action, Decision, JobKey, Ledger, NodeAction, NodeVerdict
from slurm_ft.slurm import nodelist
from slurm_ft.slurm.components import components
from slurm_ft.slurm.protocol import JobRecord, JobUpdate, NodeRecord, Slurm

RELEASE_POLL = 0.05  # seconds between looks while a job is COMPLETING, at first
RELEASE_POLL_MAX = 1.0


@dataclass(frozen=True, slots=True)
class Done:
    """What an action did, step by step, for the journal; `failed` lists what Slurm refused."""

    steps: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


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


def apply(slurm: Slurm, key: JobKey, decision: Decision, history: Ledger) -> Done:
    """Carry `decision` out on the job; `history` already holds this attempt.

    The order is the measured one: requeue while COMPLETING, then update (Slurm refuses the update of a job that ended
    and was not requeued). A step that fails is reported and does not stop the others.
    """
    if decision.action is Action.NONE:
        return Done()
    try:
        updates = _updates(slurm, key, decision, history)  # before the requeue: nothing may fail between the two
    except SlurmFtError as error:
        return Done((), (f"read the job: {error}",))
    record = Step("exclude and record", partial(_write_back, slurm, updates))
    if decision.action is Action.REQUEUE:
        return _run((Step("requeue", partial(_requeue, slurm, key), vital=True), record))
    if decision.action is Action.CANCEL:
        return _run((record, Step("cancel", partial(slurm.cancel, key.address))))
    return _run((record,))


@dataclass(frozen=True, slots=True)
class Step:
    """One change. `vital`: when it fails, those after it make no sense."""

    name: str
    act: Callable[[], None]
    vital: bool = False


def _run(steps: Sequence[Step]) -> Done:
    done: list[str] = []
    failed: list[str] = []
    for step in steps:
        try:
            step.act()
            done.append(step.name)
        except SlurmFtError as error:
            failed.append(f"{step.name}: {error}")
            if step.vital:
                break
    return Done(tuple(done), tuple(failed))


def _requeue(slurm: Slurm, key: JobKey) -> None:
    """Look once more right before: a requeue would revive a cancelled job and kill a running attempt.

    A job that somebody else has requeued meanwhile needs no second one.
    """
    job = slurm.job(key.address)
    if job is not None and job.state in ("COMPLETING", "PENDING") and job.restarts == key.attempt + 1:
        return
    if job is None or job.state != "COMPLETING" or job.restarts != key.attempt:
        state = "gone" if job is None else f"{job.state}, restarts {job.restarts}"
        raise SlurmCommandError(f"requeue {key.address}", "not tried", f"the job is {state} by now")
    try:
        slurm.requeue(key.address)
    except SlurmCommandError:
        if not _requeued(slurm, key):  # a command whose answer was lost may have done its work
            raise


def _requeued(slurm: Slurm, key: JobKey) -> bool:
    job = slurm.job(key.address)
    return job is not None and job.restarts == key.attempt + 1


def end_hanging(slurm: Slurm, key: JobKey) -> str:
    """Kill the batch script of an attempt that outlives a fatal fault, so that it fails and the hooks take over.

    Looks once more right before: another attempt of the job must not be hit. Raises SlurmCommandError.
    """
    job = slurm.job(key.address)
    if job is None or not hanging.runs(key, job):
        return "not ended: it has ended by itself"
    slurm.kill_batch_script(key.address)
    return "killed its batch script"


def _updates(slurm: Slurm, key: JobKey, decision: Decision, history: Ledger) -> dict[str, JobUpdate]:
    """By address: exclusions merged with the user's own, the tag, the ledger.

    Each component of a het job keeps its user's own exclusions and avoids all bad nodes, since it might be given those
    of another; tag and ledger are the leader's. Its bare id would overwrite those of all components (measured).
    """
    job = slurm.job(key.address)
    if job is None:
        raise SlurmCommandError(f"update {key.address}", "not tried", "Slurm has forgotten the job")
    tag = Tag(decision.count, decision.limit, history.excluded, decision.cause)
    excluded = {part.address: _excluded(slurm, part, history) for part in components(slurm, job)}
    updates = {address: JobUpdate(excluded_nodes=nodes) for address, nodes in excluded.items() if nodes}
    updates[job.address] = JobUpdate(
        excluded_nodes=excluded[job.address],
        comment=comment_tag.write(job.comment, tag),
        admin_comment=ledger.write(job.admin_comment, history),
    )
    return updates


def _excluded(slurm: Slurm, job: JobRecord, history: Ledger) -> str | None:
    return nodelist.merge(slurm.excluded_nodes(job.address), ",".join(history.excluded)) or None


def _write_back(slurm: Slurm, updates: Mapping[str, JobUpdate]) -> None:
    """Each all at once, or one by one if Slurm refuses that."""
    for address, update in updates.items():
        try:
            slurm.update_job(address, update)
        except SlurmCommandError:
            _update_one_by_one(slurm, address, update)


def write_records(slurm: Slurm, key: JobKey, history: Ledger, limit: int) -> None:
    """Write ledger and tag of a job that has started again; Slurm accepts no exclusions then. Raises SlurmFtError."""
    job = slurm.job(key.address)
    if job is None:
        return
    cause = history.attempts[-1].cause if history.attempts else ""
    tag = Tag(history.count, limit, history.excluded, cause)
    comment = comment_tag.write(job.comment, tag) if history.count else None
    slurm.update_job(job.address, JobUpdate(comment=comment, admin_comment=ledger.write(job.admin_comment, history)))


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
        JobUpdate(excluded_nodes=nodelist.fold(excluded) or None),
        JobUpdate(admin_comment=update.admin_comment),
        JobUpdate(comment=update.comment),
    )
    wanted = [part for part in parts if part != JobUpdate()]  # Slurm refuses an update that changes nothing
    done = _run([Step(repr(part), partial(slurm.update_job, address, part)) for part in wanted])
    if done.failed:
        raise SlurmCommandError(f"update {address}", "failed in part", "; ".join(done.failed))


def release(
    slurm: Slurm,
    key: JobKey,
    timeout: float,
    delay: float = 0.0,
    now: Callable[[], float] = time.monotonic,
) -> str:
    """Remove the wait of 121 s that Slurm gives a requeued job, as soon as it has left COMPLETING.

    Set earlier, the begin time is overwritten on 25.11 and 26.05 (measured). Returns what happened. If this never runs,
    the job starts two minutes later all the same. Raises SlurmCommandError when Slurm does not answer until the end.

    The wait has a purpose: slurmd refuses a job whose credential was made in the same second in which it revoked the
    last one ("Job credential revoked", and the job ends FAILED; measured on 22.05, source of all releases), and 22.05
    forgets a revoked one only every two seconds, until when it skips the Prolog. So a job that may return to one of its
    nodes waits for `delay` seconds; one whose nodes are all excluded need not.
    """
    earliest, deadline, pause = now() + delay, now() + timeout, RELEASE_POLL
    while True:
        late = now() >= deadline
        try:
            outcome = _release_if_pending(slurm, key, early=now() < earliest)
        except SlurmCommandError:  # a busy controller is asked again
            if late:
                raise
            outcome = ""
        if outcome or late:
            return outcome or f"still COMPLETING after {timeout:g} s"
        time.sleep(pause)
        pause = min(pause * 1.5, RELEASE_POLL_MAX)


def _release_if_pending(slurm: Slurm, key: JobKey, *, early: bool) -> str:
    """Returns what happened; nothing while the job is COMPLETING or it is too early."""
    job = slurm.job(key.address)
    if job is None or job.state not in ("COMPLETING", "PENDING"):
        return f"nothing to release: {job.state if job else 'gone'}"
    if early or any(part.state == "COMPLETING" for part in components(slurm, job)):
        return ""
    slurm.update_job(key.address, JobUpdate(start_now=True))
    return "released"

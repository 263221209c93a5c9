"""The Slurm backend that uses pyslurm, Slurm's Python bindings, in place of a process for each question.

pyslurm must be built for the cluster's own release; `backend.py` sees to that. It is GPL-2 and stays optional. What it
cannot express goes to the commands: squeue's filters, tasks of an array and components of a het job by their address,
emptying a text, and a text that is not UTF-8. Its calls are bounded by Slurm's own MessageTimeout.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from slurm_ft.errors import SlurmCommandError
from slurm_ft.slurm import nodelist
from slurm_ft.slurm.cli import BUSY, CommandLine
from slurm_ft.slurm.fields import CLOCKS_APART
from slurm_ft.slurm.protocol import JobRecord, JobUpdate, NodeRecord

UNKNOWN_JOB = "Invalid job id"


@dataclass(frozen=True, slots=True)
class Bindings:
    """`library` is the module pyslurm, with SLURM_CONF set before it was imported."""

    library: Any
    commands: CommandLine

    def impatient(self) -> Bindings:
        """See CommandLine.impatient."""
        return replace(self, commands=self.commands.impatient())

    def within(self, budget: float) -> Bindings:
        """See CommandLine.within."""
        return replace(self, commands=self.commands.within(budget))

    def job(self, address: str) -> JobRecord | None:
        """See Slurm.job."""
        if not address.isdigit():
            return self.commands.job(address)
        try:
            with self._asking(f"Job.load({address})"):
                return _job(self.library.Job.load(int(address)), time.time())
        except SlurmCommandError as error:
            if UNKNOWN_JOB in error.output:
                return None
            raise
        except (_BeyondBindingsError, UnicodeError):
            return self.commands.job(address)

    def jobs(self, filters: Sequence[str] = ()) -> list[JobRecord]:
        """See Slurm.jobs."""
        if filters:
            return self.commands.jobs(filters)
        try:
            with self._asking("Jobs.load()"):
                return [_job(job, time.time()) for job in self.library.Jobs.load().values()]
        except (_BeyondBindingsError, UnicodeError):
            return self.commands.jobs()

    def job_nodes(self, address: str) -> str:
        """See Slurm.job_nodes."""
        job = self.job(address) if address.isdigit() else None
        return job.nodes if job else self.commands.job_nodes(address)

    def excluded_nodes(self, address: str) -> str:
        """See Slurm.excluded_nodes."""
        return self.commands.excluded_nodes(address)

    def nodes(self, nodes: str = "") -> list[NodeRecord]:
        """See Slurm.nodes."""
        wanted = set(nodelist.expand(nodes))
        try:
            with self._asking("Nodes.load()"):
                known = [_node(node) for node in self.library.Nodes.load().values()]
        except UnicodeError:
            return self.commands.nodes(nodes)
        return [node for node in known if not wanted or node.name in wanted]

    def drain_node(self, name: str, reason: str) -> None:
        """See Slurm.drain_node."""
        self._modify_node(name, state="DRAIN", reason=reason)

    def resume_node(self, name: str) -> None:
        """See Slurm.resume_node."""
        self._modify_node(name, state="RESUME")

    def set_node_comment(self, name: str, comment: str) -> None:
        """See Slurm.set_node_comment."""
        if _expressible(comment):
            self._modify_node(name, comment=comment)
        else:
            self.commands.set_node_comment(name, comment)

    def cluster(self) -> str:
        """See Slurm.cluster."""
        return self.commands.cluster()

    def expedited(self, address: str) -> bool:
        """See Slurm.expedited."""
        return self.commands.expedited(address)

    def requeue(self, address: str) -> None:
        """See Slurm.requeue."""
        if not address.isdigit():
            self.commands.requeue(address)
            return
        with self._asking(f"Job({address}).requeue()"):
            self.library.Job(int(address)).requeue()

    def requeue_held(self, address: str) -> None:
        """See Slurm.requeue_held."""
        self.commands.requeue_held(address)

    def release_hold(self, address: str) -> None:
        """See Slurm.release_hold."""
        self.commands.release_hold(address)

    def cancel(self, address: str) -> None:
        """See Slurm.cancel. pyslurm's cancel leaves the batch step out."""
        self.commands.cancel(address)

    def kill_batch_script(self, address: str) -> None:
        """See Slurm.kill_batch_script."""
        self.commands.kill_batch_script(address)

    def update_job(self, address: str, update: JobUpdate) -> None:
        """See Slurm.update_job."""
        texts = {"comment": update.comment, "admin_comment": update.admin_comment}
        given = {name: text for name, text in texts.items() if text is not None}
        excluded = nodelist.expand(update.excluded_nodes or "")
        emptied = update.excluded_nodes is not None and not excluded
        if not address.isdigit() or update.start_now or emptied or not all(map(_expressible, given.values())):
            self.commands.update_job(address, update)
            return
        changes = {**given, **({"excluded_nodes": list(excluded)} if excluded else {})}
        with self._asking(f"Job({address}).modify({', '.join(changes)})"):
            self.library.Job(int(address)).modify(self.library.JobSubmitDescription(**changes))

    def _modify_node(self, name: str, **changes: str) -> None:
        with self._asking(f"Node({name}).modify({', '.join(changes)})"):
            self.library.Node(name).modify(self.library.Node(**changes))

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """One place turns pyslurm's errors into ours."""
        try:
            yield
        except self.library.RPCError as error:
            said = str(error)
            busy = any(words in said for words in BUSY)
            raise SlurmCommandError(f"pyslurm.{what}", "failed", said, busy=busy) from error


class _BeyondBindingsError(Exception):
    """A job that pyslurm shows otherwise than squeue does."""


def _job(job: Any, now: float) -> JobRecord:
    if job.array_id or job.heterogeneous_id:
        raise _BeyondBindingsError
    ended = job.end_time
    return JobRecord(
        raw_id=job.id,
        address=str(job.id),
        name=job.name or "",
        user=job.user_name or "",
        partition=job.partition or "",
        state=job.state,
        reason=_text(job.state_reason),
        nodes=_text(job.allocated_nodes),
        restarts=job.requeue_count or 0,
        requeue=bool(job.is_requeueable),
        batch=bool(job.is_batch_job),
        exit_code=job.exit_code or 0,
        exit_signal=job.exit_code_signal or 0,
        submitted=_time(job.submit_time),
        started=_time(job.start_time),
        ended=float(ended) if ended and ended <= now + CLOCKS_APART else None,  # as fields.end_time
        stdout=job.standard_output or "",
        comment=job.comment or "",
        admin_comment=job.admin_comment or "",
        batch_host=_text(job.batch_host),
        required_nodes=_text(job.required_nodes),
        reservation=_text(job.reservation),
        node_count=job.num_nodes or 0,
        time_limit=job.time_limit * 60.0 if isinstance(job.time_limit, int) else None,  # minutes, or UNLIMITED
        account=_text(job.account),
        qos=_text(job.qos),
    )


def _node(node: Any) -> NodeRecord:
    flags = frozenset(node.state.lower().rstrip("*~#!%$@^-").split("+"))
    return NodeRecord(node.name, flags, _text(node.reason), node.comment or "")


def _text(value: str | None) -> str:
    return "" if value in (None, "None", "N/A") else value


def _time(value: float | None) -> float | None:
    return float(value) if value else None


def _expressible(text: str) -> bool:
    """pyslurm takes an empty text for none, and encodes as UTF-8."""
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False

"""Slurm in memory: implements the `Slurm` protocol, remembers every change asked of it, and can be told to refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from slurm_ft.errors import SlurmCommandError
from slurm_ft.failover.comment_tag import COMMENT_LIMIT
from slurm_ft.slurm import nodelist
from slurm_ft.slurm.protocol import JobRecord, JobUpdate, NodeRecord

FINAL = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "DEADLINE", "OUT_OF_MEMORY")
LOOKS = ("cluster", "job", "jobs", "job_nodes", "excluded_nodes", "nodes", "expedited")


def refused(command: str, said: str) -> SlurmCommandError:
    return SlurmCommandError(command, "failed with 1", said)


def node(name: str, state: str = "idle", reason: str = "", comment: str = "") -> NodeRecord:
    """A node whose state is written as sinfo does: `idle+drain`."""
    return NodeRecord(name, frozenset(state.split("+")), reason, comment)


@dataclass
class FakeSlurm:
    """`refused` holds the names of methods that raise; `before[method]` runs first and may change anything."""

    job_records: dict[str, JobRecord] = field(default_factory=dict)
    node_records: dict[str, NodeRecord] = field(default_factory=dict)
    excluded: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    refuses_update: Callable[[JobUpdate], bool] = lambda _: False
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    calls: list[tuple[object, ...]] = field(default_factory=list)
    expedited_jobs: set[str] = field(default_factory=set)
    ends_as: dict[str, str] = field(default_factory=dict)  # what a COMPLETING job will be
    now: float = 3000.0

    @classmethod
    def of(cls, job: JobRecord, *nodes: NodeRecord) -> FakeSlurm:
        return cls({job.address: job}, {node.name: node for node in nodes})

    def impatient(self) -> FakeSlurm:
        return self

    def within(self, budget: float) -> FakeSlurm:
        return self

    @property
    def changes(self) -> list[tuple[object, ...]]:
        """The calls that ask for a change, in order."""
        return [call for call in self.calls if call[0] not in LOOKS]

    def set_job(self, address: str, **fields: object) -> None:
        self.job_records[address] = replace(self.job_records[address], **fields)  # type: ignore[arg-type]

    def set_node(self, name: str, *, state: str = "", **fields: str) -> None:
        changed = replace(self.node_records[name], **fields)  # type: ignore[arg-type]
        self.node_records[name] = replace(changed, states=frozenset(state.split("+"))) if state else changed

    def job(self, address: str) -> JobRecord | None:
        self._called("job", address)
        return self.job_records.get(address)

    def jobs(self, filters: Sequence[str] = ()) -> list[JobRecord]:
        self._called("jobs", *filters)
        return list(self.job_records.values())

    def job_nodes(self, address: str) -> str:
        self._called("job_nodes", address)
        return self._known(address).nodes

    def excluded_nodes(self, address: str) -> str:
        self._called("excluded_nodes", address)
        return self.excluded.get(address, "")

    def nodes(self, nodes: str = "") -> list[NodeRecord]:
        """As sinfo: all nodes for an empty list; a name that it does not know is passed over."""
        self._called("nodes", nodes)
        names = nodelist.expand(nodes) or tuple(self.node_records)
        return [self.node_records[name] for name in names if name in self.node_records]

    def cluster(self) -> str:
        self._called("cluster")
        return "c"

    def drain_node(self, name: str, reason: str) -> None:
        self._called("drain_node", name, reason)
        self.set_node(name, state="idle+drain", reason=reason)

    def resume_node(self, name: str) -> None:
        self._called("resume_node", name)
        self.set_node(name, state="idle", reason="")

    def set_node_comment(self, name: str, comment: str) -> None:
        self._called("set_node_comment", name, comment)
        self.set_node(name, comment=comment)

    def requeue(self, address: str) -> None:
        """A COMPLETING job stays that, and has no end any more; one that has ended is PENDING at once."""
        self._called("requeue", address)
        job = self._known(address)
        if not (job.batch and job.requeue):
            raise refused("scontrol requeue", "Requested operation is presently disabled")
        if job.state == "PENDING" or (job.state == "COMPLETING" and job.ended is None):
            raise refused("scontrol requeue", "Job is pending execution")
        self.set_job(address, restarts=job.restarts + 1, ended=None)
        if job.state == "RUNNING":
            self.set_job(address, state="COMPLETING")
        elif job.state != "COMPLETING":
            self.set_job(address, state="PENDING", submitted=self.now, nodes="")

    def expedited(self, address: str) -> bool:
        self._called("expedited", address)
        return address in self.expedited_jobs

    def requeue_held(self, address: str) -> None:
        self.requeue(address)
        self.calls[-1] = ("requeue_held", address)

    def release_hold(self, address: str) -> None:
        self._called("release_hold", address)
        self.set_job(address, state="PENDING", reason="")

    def cancel(self, address: str) -> None:
        """Ignored while the job is COMPLETING, unless it was requeued; an ended job is left as it is."""
        self._called("cancel", address)
        job = self._known(address)
        if job.state == "PENDING":
            self.set_job(address, state="CANCELLED", ended=self.now)
        elif job.state == "RUNNING" or (job.state == "COMPLETING" and job.ended is None):
            self.set_job(address, state="COMPLETING", ended=self.now)
            self.ends_as[address] = "CANCELLED"

    def kill_batch_script(self, address: str) -> None:
        self._called("kill_batch_script", address)
        self.set_job(address, state="COMPLETING", exit_signal=9)

    def update_job(self, address: str, update: JobUpdate) -> None:
        self._called("update_job", address, update)
        if update == JobUpdate():
            raise SlurmCommandError("scontrol update", "failed with 1", "No changes specified")
        self._refuse_as_slurm_does(self._known(address), update)
        if self.refuses_update(update):
            raise SlurmCommandError("scontrol update", "failed with 1", "Invalid node name specified")
        if update.excluded_nodes is not None:
            self.excluded[address] = update.excluded_nodes
        texts = {"comment": update.comment, "admin_comment": update.admin_comment}
        self.set_job(address, **{name: text for name, text in texts.items() if text is not None})

    def _refuse_as_slurm_does(self, job: JobRecord, update: JobUpdate) -> None:
        """Measured on 22.05; the whole update is refused."""
        if job.state in FINAL or (job.state == "COMPLETING" and job.ended is not None):
            raise refused("scontrol update", "Job has already finished")
        if job.state == "RUNNING" and (update.excluded_nodes is not None or update.start_now):
            raise refused("scontrol update", "Job is no longer pending execution")
        if update.comment is not None and len(update.comment.encode("utf-8", "surrogateescape")) > COMMENT_LIMIT:
            raise refused("scontrol update", "Invalid argument")

    def _called(self, name: str, *arguments: object) -> None:
        self.calls.append((name, *arguments))
        if name in self.before:
            self.before[name]()
        if name in self.refused:
            raise SlurmCommandError(name, "failed with 1", "Unable to contact slurm controller")

    def _known(self, address: str) -> JobRecord:
        if address not in self.job_records:
            raise SlurmCommandError("squeue", "failed with 1", "slurm_load_jobs error: Invalid job id specified")
        return self.job_records[address]

"""What we ask of Slurm, whatever the backend: the contract that every backend's tests share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job as Slurm holds it. Times are unix seconds, None where Slurm knows none."""

    raw_id: int
    address: str  # as squeue names it: ARRAYJOBID_TASKID, or LEADER+OFFSET for a component of a het job
    name: str
    user: str
    partition: str
    state: str  # RUNNING, PENDING, COMPLETING, FAILED, …
    reason: str
    nodes: str  # nodelist; while COMPLETING only the nodes whose epilog has not ended
    restarts: int
    requeue: bool
    batch: bool
    exit_code: int  # of the batch script: code, and the signal that ended it
    exit_signal: int
    submitted: float | None
    started: float | None
    ended: float | None
    stdout: str
    comment: str
    admin_comment: str
    batch_host: str = ""  # where the batch script runs; stays when that node is taken out of the job
    required_nodes: str = ""  # the user's own --nodelist
    reservation: str = ""
    node_count: int = 0
    time_limit: float | None = None  # seconds; None: without bound, or the partition's own
    account: str = ""
    qos: str = ""

    @property
    def het_leader(self) -> str:
        """Of a component of a het job the raw id of its leader, else nothing."""
        leader, plus, _ = self.address.partition("+")
        return leader if plus else ""


@dataclass(frozen=True, slots=True)
class Streams:
    """Where a job's output goes, as Slurm names it: patterns may be unexpanded, paths relative (fields.STDOUT)."""

    raw_id: int
    uid: int
    stdout: str
    stderr: str  # empty where it is the same
    work_dir: str


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node as Slurm holds it. `states` are its base state and flags in lower case: idle, down, drain, …"""

    name: str
    states: frozenset[str]
    reason: str
    comment: str

    @property
    def down(self) -> bool:
        """Whether Slurm holds it for dead, so that its epilog will never answer."""
        return "down" in self.states

    @property
    def draining(self) -> bool:
        """Whether it takes no new jobs."""
        return not self.states.isdisjoint(("down", "drain", "fail"))


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """Fields of a job to change in one request; None leaves a field alone."""

    excluded_nodes: str | None = None  # replaces the whole list: merge first
    comment: str | None = None
    admin_comment: str | None = None
    start_now: bool = False
    start_in: int = 0  # with start_now: whole seconds from now


class Slurm(Protocol):
    """A backend. Every method raises SlurmCommandError when Slurm does not answer or refuses."""

    def job(self, address: str) -> JobRecord | None:
        """One job, or None when Slurm has forgotten it. `address` is a raw id or what a JobRecord says; the raw id of a
        het job's leader names the leader alone."""

    def jobs(self, filters: Sequence[str] = ()) -> list[JobRecord]:
        """All jobs that squeue's own filter options let through, in one request."""

    def job_nodes(self, address: str) -> str:
        """The nodelist alone: cheap enough to poll. For the leader of a het job, the nodes of all its components that
        are COMPLETING: one that is not lists all its nodes again."""

    def excluded_nodes(self, address: str) -> str:
        """The nodelist that the job, or the one component of a het job, excludes: the user's own and ours."""

    def nodes(self, nodelist: str = "") -> list[NodeRecord]:
        """The named nodes, or all."""

    def cluster(self) -> str:
        """The cluster's name."""

    def drain_node(self, name: str, reason: str) -> None:
        """Let no new job start there."""

    def resume_node(self, name: str) -> None:
        """Take a drained node back into service; jobs that run there go on."""

    def set_node_comment(self, name: str, comment: str) -> None:
        """Replace the node's Comment."""

    def expedited(self, address: str) -> bool:
        """Whether Slurm itself requeues the job when it fails: at once if a node Epilog failed, held if none did."""

    def requeue(self, address: str) -> None:
        """Requeue a batch job. Kills it if it runs: check its restart count first."""

    def requeue_held(self, address: str) -> None:
        """The same, but the job stays held."""

    def release_hold(self, address: str) -> None:
        """Let a held job be scheduled again."""

    def cancel(self, address: str) -> None:
        """Cancel the job."""

    def kill_batch_script(self, address: str) -> None:
        """Kill the batch script of a running job, so that the job ends as failed by signal 9, neither cancelled nor
        requeued; its steps end with it. One that has ended is refused."""

    def update_job(self, address: str, update: JobUpdate) -> None:
        """Change the given fields; Slurm takes all of them or none."""

"""One job's life on a Slurm in memory: what the cluster does by itself, as facts were measured on the real one.

    PENDING -> RUNNING -> COMPLETING -> an end, or PENDING once more

While the job is COMPLETING its nodes' epilogs have had their say and EpilogSlurmctld runs; `leave_completing()` ends
that. Time passes only when `pass_time()` is called.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fake_slurm import FINAL, FakeSlurm, node

from slurm_ft.failover import node_record
from slurm_ft.model import Domain, NodeVerdict
from slurm_ft.slurm import nodelist
from slurm_ft.slurm.protocol import JobRecord

ADDRESS = "12"
BEGIN_TIME = 121.0  # seconds that a requeued job waits


@dataclass
class FakeCluster(FakeSlurm):
    """One job and some nodes; an attempt takes one node."""

    begin: float = 0.0  # when the pending job may start
    held: bool = False

    @classmethod
    def with_nodes(cls, job: JobRecord, count: int, now: float) -> FakeCluster:
        names = [f"n{number}" for number in range(1, count + 1)]
        fresh = replace(job, state="PENDING", submitted=now, started=None, ended=None, nodes="")
        return cls({job.address: fresh}, {name: node(name) for name in names}, now=now)

    @property
    def record(self) -> JobRecord:
        return self.job_records[ADDRESS]

    @property
    def taken(self) -> str:
        """The node of the attempt that runs or ends."""
        return self._taken

    _taken: str = ""

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def may_start_on(self) -> list[str]:
        """Healthy nodes that the job does not exclude."""
        if self.record.state != "PENDING" or self.held or self.now < self.begin:
            return []
        excluded = set(nodelist.expand(self.excluded.get(ADDRESS, "")))
        return [name for name, one in self.node_records.items() if not one.draining and name not in excluded]

    def start(self, name: str) -> None:
        self._taken = name
        self.set_job(ADDRESS, state="RUNNING", nodes=name, started=self.now, reason="", exit_code=0, exit_signal=0)

    def end(self, code: int, signal: int = 0, *, reason: str = "NonZeroExitCode", ends_as: str = "FAILED") -> None:
        """The batch script ends by itself, or Slurm ends it for good."""
        self.ends_as[ADDRESS] = ends_as
        self.set_job(
            ADDRESS, state="COMPLETING", ended=self.now, exit_code=code, exit_signal=signal, reason=reason, nodes=""
        )

    def blame(self, cause: str = "xid79") -> None:
        """The node's epilog drains it for a fault of this attempt."""
        record = self.record
        ended = record.restarts - (record.ended is None)
        verdict = NodeVerdict(self._taken, record.raw_id, ended, Domain.HARDWARE, cause, None, self.now, "NVRM: Xid")
        reason = node_record.add(self.node_records[self._taken].reason, verdict)
        self.set_node(self._taken, state="idle+drain", reason=reason)

    def preempt(self) -> None:
        """Slurm, or an admin with `scontrol requeue`, requeues the running job."""
        self.set_job(ADDRESS, state="COMPLETING", ended=None, restarts=self.record.restarts + 1, nodes="", reason="")

    def lose_node(self) -> None:
        """The node goes down: Slurm requeues the job."""
        self.set_node(self._taken, state="down", reason="Not responding")
        self.preempt()

    def leave_completing(self) -> None:
        """Nodes and hook have ended. A requeued job gets a new submit time and Slurm's begin time."""
        job = self.record
        if job.state != "COMPLETING":
            return
        if job.ended is None:
            self.set_job(ADDRESS, state="PENDING", submitted=self.now, nodes="", reason="BeginTime")
            self.begin = self.now + BEGIN_TIME
        else:
            self.set_job(ADDRESS, state=self.ends_as.get(ADDRESS, "FAILED"), nodes=self._taken)

    @property
    def finished(self) -> bool:
        return self.record.state in FINAL

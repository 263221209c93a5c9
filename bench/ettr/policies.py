"""What becomes of an ended attempt, under each policy. Ours asks the real `decide()` and keeps the real ledger."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol

from ettr.world import Assumptions, Fault, Kind
from slurm_ft.failover import ledger
from slurm_ft.failover.policy import decide
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Action, Domain, ExitStatus, JobEnd, JobKey, Ledger, NodeVerdict

CRED_WAIT = 121.0  # seconds from a requeue to its earliest start: cred_expire + 1, measured on Slurm 22.05 to 26.05


@dataclass(frozen=True, slots=True)
class Answer:
    """What happens next: a restart after `delay` seconds, or none at all until a human has looked."""

    delay: float | None
    drained: str | None = None

    @property
    def needs_human(self) -> bool:
        """Nobody restarts it but a human."""
        return self.delay is None


class Policy(Protocol):
    """One way to treat an ended attempt. A new one is made for each training."""

    name: str

    def noticed(self, fault: Fault) -> float:
        """Seconds from the fault to the end of the attempt."""

    def answer(self, fault: Fault, now: float, nodes: tuple[str, ...], /) -> Answer:
        """Decide about the attempt that ended at `now` on `nodes`."""

    def submitted_again(self) -> None:
        """A human has submitted a new job: what was counted for the old one is void."""


class _Unwatched:
    """Nothing looks at a running job: a hang lasts until the collective library gives up."""

    def __init__(self, assumptions: Assumptions, random: Random) -> None:
        self.assumptions, self.random = assumptions, random

    def noticed(self, fault: Fault) -> float:
        """Seconds until the attempt has ended."""
        waits = {Kind.HANG: self.assumptions.nccl_timeout, Kind.DOWN: self.assumptions.slurmd_timeout}
        return waits.get(fault.kind, 0.0)

    def submitted_again(self) -> None:
        """Nothing is counted."""


class NoFailover(_Unwatched):
    """`--no-requeue`, and somebody who looks at the job from time to time."""

    name = "no failover"

    def answer(self, fault: Fault, _now: float, _nodes: tuple[str, ...], /) -> Answer:
        """A human drains the node and submits again."""
        return Answer(None, fault.node)


class PlainRequeue(_Unwatched):
    """RequeueExit for every exit code: back on the same nodes after 121 s, the user's own errors too."""

    name = "plain requeue"

    def answer(self, fault: Fault, _now: float, _nodes: tuple[str, ...], /) -> Answer:
        """Only a node that is down is not used again."""
        return Answer(CRED_WAIT, fault.node if fault.kind is Kind.DOWN else None)


class ExpeditedRequeue(_Unwatched):
    """Slurm's own `--requeue=expedite` with the usual epilog, which drains its node for any Xid in the kernel log.

    A third of the training's own failures leave an Xid too (13, 31, 43: illegal addresses), so they are retried and
    cost a healthy node. Nothing limits the retries.
    """

    name = "expedited requeue"
    xid_of_a_bug = 1 / 3

    def answer(self, fault: Fault, _now: float, nodes: tuple[str, ...], /) -> Answer:
        """Requeued at once if an epilog failed."""
        if fault.kind is Kind.DOWN:
            return Answer(CRED_WAIT, fault.node)
        if fault.kind is Kind.BUG:
            drained = self.random.random() < self.xid_of_a_bug
            return Answer(0.5, self.random.choice(nodes)) if drained else Answer(None)
        if self.random.random() < self.assumptions.missed:
            return Answer(None)
        return Answer(0.5, fault.node)


class SlurmFt:
    """Ours: the watcher ends a hang, the verdict decides, the ledger counts, the node is excluded."""

    grace = 60.0 + 2.0  # seconds: watch_grace, then bench/watch.py's bound from the end of the grace time to the drain
    release = 3.0  # seconds: node_reuse_delay, since a job of many nodes returns to most of them

    def __init__(self, assumptions: Assumptions, random: Random, limit: int) -> None:
        self.name = f"slurm_ft, limit {limit}"
        self.assumptions, self.random, self.limit = assumptions, random, limit
        self.submitted_again()

    def submitted_again(self) -> None:
        """A new job has a ledger of its own."""
        self.ledger, self.attempt = Ledger(run_id="simulated"), 0

    def noticed(self, fault: Fault) -> float:
        """Seconds until the attempt has ended."""
        return {Kind.HANG: self.grace, Kind.DOWN: self.assumptions.slurmd_timeout}.get(fault.kind, 0.0)

    def answer(self, fault: Fault, now: float, nodes: tuple[str, ...], /) -> Answer:
        """Ask `decide()`, as EpilogSlurmctld does."""
        end = self._end(fault, now, nodes)
        decision = decide(end, self._verdicts(fault, now, nodes), self.ledger.count)
        decided = Entry(end.ended, Stage.DECIDED, end.key, nodes=end.nodes, started=end.started, decision=decision)
        self.ledger = ledger.add(self.ledger, decided.attempt())
        self.attempt += 1
        if decision.action in (Action.REQUEUE, Action.RECORD):
            return Answer(self.release, next(iter(decision.exclude), None))
        return Answer(None, fault.node)

    def _end(self, fault: Fault, now: float, nodes: tuple[str, ...]) -> JobEnd:
        down = (fault.node,) if fault.kind is Kind.DOWN and fault.node else ()
        return JobEnd(
            key=JobKey(raw_id=1, address="1", attempt=self.attempt),
            exit=ExitStatus(0, 1) if down else ExitStatus(1, 0),
            reason="NodeFail" if down else "NonZeroExitCode",
            nodes="",
            node_names=nodes,
            down_nodes=down,
            silent_nodes=(),
            started=None,
            ended=now,
            restarts_now=self.attempt + bool(down),
            opted_in=True,
            requeueable=True,
            limit=self.limit,
        )

    def _verdicts(self, fault: Fault, now: float, nodes: tuple[str, ...]) -> tuple[NodeVerdict, ...]:
        """What the epilogs leave behind: right, missed, or wrong at the assumed rates."""
        wrong = self.random.random() < (self.assumptions.false_alarm if fault.node is None else self.assumptions.missed)
        if fault.kind is Kind.DOWN or wrong is (fault.node is not None):
            return ()
        blamed = fault.node or self.random.choice(nodes)
        return (NodeVerdict(blamed, 1, self.attempt, Domain.HARDWARE, "xid79", None, now, "Xid 79"),)

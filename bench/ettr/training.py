"""One training from its first start to its last step, under one policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from ettr.policies import Answer, Policy
from ettr.world import Assumptions, Cluster, Fault, Kind


@dataclass(slots=True)
class Outcome:
    """What one training cost. Times in seconds."""

    work: float  # training time that was asked for
    wall: float = 0.0  # until it was done; waits for a human who mends the training's own bug are not in it
    allocated: float = 0.0  # seconds in which the job held its nodes
    faults: int = 0
    chains: list[bool] = field(default_factory=list)  # one job each: did it get through, or did a human have to help?
    wrongly_drained: int = 0

    @property
    def ettr(self) -> float:
        """Effective training time ratio: productive over wall time (Kokolis et al.)."""
        return self.work / self.wall


class Training:
    """The state of one simulated training."""

    def __init__(self, gpus: int, work: float, policy: Policy, assumptions: Assumptions, random: Random) -> None:
        self.cluster = Cluster(gpus, assumptions, random)
        self.policy, self.assumptions, self.random = policy, assumptions, random
        self.outcome, self.now, self.done, self.mended = Outcome(work), 0.0, 0.0, 0.0
        self.interval = assumptions.interval(1 / self.cluster.fault_rate())

    def run(self) -> Outcome:
        """Attempt after attempt until the work is done."""
        while (fault := self._attempt()) is not None:
            self.outcome.faults += fault.kind is not Kind.BUG
            self._restart(fault)
        self.outcome.chains.append(True)
        self.outcome.wall = self.now - self.mended
        return self.outcome

    def _attempt(self) -> Fault | None:
        """One attempt: its end, or None if it finished the training. Moves the clock to the end of the attempt."""
        self.now = self.cluster.fill(self.now)
        fault = self._next_fault()
        pace = 1 / (1 + self.assumptions.checkpoint_cost / self.interval)
        finish = self.now + self.assumptions.restart + (self.outcome.work - self.done) / pace
        if fault.at >= finish:
            self.outcome.allocated += finish - self.now
            self.now = finish
            return None
        trained = max(0.0, fault.at - self.now - self.assumptions.restart) * pace
        self.done += self._durable(trained)
        end = fault.at + self.policy.noticed(fault)
        self.outcome.allocated += end - self.now
        self.now = end
        return fault

    def _durable(self, trained: float) -> float:
        """What of an attempt's training is in its newest finished checkpoint."""
        finished = max(0.0, trained - self.assumptions.checkpoint_durable)
        return finished // self.interval * self.interval

    def _next_fault(self) -> Fault:
        hardware = self.random.expovariate(self.cluster.fault_rate())
        bug = self.random.expovariate(1 / self.assumptions.bug_every)
        if bug < hardware:
            return Fault(self.now + bug, Kind.BUG, None)
        lasting = self.random.random() < self.assumptions.lasting_share
        return Fault(self.now + hardware, self._kind(), self.cluster.failing_node(), lasting)

    def _kind(self) -> Kind:
        draw = self.random.random()
        if draw < self.assumptions.down_share:
            return Kind.DOWN
        return Kind.HANG if draw < self.assumptions.down_share + self.assumptions.hang_share else Kind.CRASH

    def _restart(self, fault: Fault) -> None:
        answer = self.policy.answer(fault, self.now, tuple(self.cluster.used))
        self._drain(fault, answer)
        if answer.needs_human or fault.kind is Kind.BUG:
            self._human(fault, answer)
        else:
            self.now += answer.delay or 0.0
            self._black_hole(fault, answer)

    def _drain(self, fault: Fault, answer: Answer) -> None:
        if answer.drained is None:
            return
        self.outcome.wrongly_drained += answer.drained != fault.node
        self.cluster.drain(answer.drained, self.now)

    def _human(self, fault: Fault, answer: Answer) -> None:
        """Somebody looks, mends the training if it was its own failure, drains the node otherwise, and submits again.

        A policy that retries the training's own failure holds the nodes all that time.
        """
        wait = self.random.expovariate(1 / self.assumptions.human)
        self.now += wait
        if fault.kind is Kind.BUG:
            self.mended += wait
            self.outcome.allocated += 0.0 if answer.needs_human else wait
        elif fault.node not in self.cluster.away and fault.node is not None:
            self.cluster.drain(fault.node, self.now)
        self.outcome.chains.append(False)
        self.policy.submitted_again()

    def _black_hole(self, fault: Fault, answer: Answer) -> None:
        """A broken node that nobody drained eats one restart after the other until a human comes."""
        if fault.node is None or not fault.lasting or answer.drained == fault.node:
            return
        wait = self.random.expovariate(1 / self.assumptions.human)
        self.now += wait
        self.outcome.allocated += wait
        self.cluster.drain(fault.node, self.now)
        self.outcome.chains.append(False)

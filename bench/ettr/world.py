"""The simulated cluster: nodes that fail, lemons that fail more often, repairs, and spares. Times are in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from random import Random

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the simulation takes for granted. Measured or published figures name their source; the rest are choices."""

    gpus_per_node: int = 8
    mttf_at_1024: float = 7.9 * HOUR  # Kokolis et al., HPCA 2025 (arXiv 2410.21680): 1,024-GPU jobs, all hardware
    lemon_share: float = 0.012  # of the nodes; choice, near the paper's share of lemon nodes
    lemon_factor: float = 20.0  # how much more often a lemon fails; choice
    down_share: float = 0.15  # faults that take the node down, so that Slurm itself requeues; choice
    hang_share: float = 0.20  # faults that leave the job hanging; choice
    lasting_share: float = 0.60  # faults that stay until somebody resets or repairs the node; choice
    repair: float = 12 * HOUR  # mean time until a drained node is back; choice
    spare_share: float = 0.04  # nodes beyond those that the training needs; choice
    slurmd_timeout: float = 300.0  # Slurm's default SlurmdTimeout
    nccl_timeout: float = 600.0  # PyTorch's default for ProcessGroupNCCL
    human: float = 2 * HOUR  # mean time until somebody looks, drains and submits again; choice
    restart: float = 180.0  # start of all processes and load of the checkpoint; choice
    bug_every: float = 5 * DAY  # mean time between failures that are the training's own; choice
    missed: float = 0.03  # share of hardware faults whose verdict is not "hardware"
    false_alarm: float = 0.01  # share of the training's own failures whose verdict is "hardware"
    checkpoint_interval: float = 300.0  # the cadence; shorter where faults come faster than that
    checkpoint_cost: float = 0.3  # added wall time of one concurrent checkpoint; see bench/checkpoint.py
    checkpoint_durable: float = 20.0  # from capture to durable: no cadence can be shorter

    def node_rate(self) -> float:
        """Faults per second of an ordinary node, so that the average node gives the published figure."""
        average = 1 / (self.mttf_at_1024 * 1024 / self.gpus_per_node)
        return average / (1 + self.lemon_share * (self.lemon_factor - 1))

    def interval(self, mttf: float) -> float:
        """Seconds between checkpoints: Young's square root of 2 * cost * MTTF (1974), within what is possible."""
        young = math.sqrt(2 * self.checkpoint_cost * mttf)
        return max(self.checkpoint_durable, min(self.checkpoint_interval, young))


class Kind(Enum):
    """What ended the attempt."""

    CRASH = "crash"  # a GPU fault that kills the job; the node stays up
    HANG = "hang"  # a GPU fault that leaves the job hanging
    DOWN = "down"  # the node dies
    BUG = "bug"  # the training's own failure


@dataclass(frozen=True, slots=True)
class Fault:
    """The end of an attempt. `node` is None for the training's own failure."""

    at: float
    kind: Kind
    node: str | None
    lasting: bool = False


class Cluster:
    """Which nodes are in the job, idle, or away for repair."""

    def __init__(self, gpus: int, assumptions: Assumptions, random: Random) -> None:
        self.needed = gpus // assumptions.gpus_per_node
        spares = max(2, round(self.needed * assumptions.spare_share))
        everything = [f"n{number}" for number in range(self.needed + spares)]
        random.shuffle(everything)
        self.lemons = {node for node in everything if random.random() < assumptions.lemon_share}
        self.used, self.idle = everything[: self.needed], everything[self.needed :]
        self.away: dict[str, float] = {}  # node -> when it is back
        self.lemons_used = sum(node in self.lemons for node in self.used)
        self._random, self._assumptions = random, assumptions

    def fault_rate(self) -> float:
        """Faults per second of the nodes in use."""
        as_ordinary = len(self.used) + self.lemons_used * (self._assumptions.lemon_factor - 1)
        return self._assumptions.node_rate() * as_ordinary

    def failing_node(self) -> str:
        """One of the nodes in use, lemons more often than others."""
        while True:
            node = self._random.choice(self.used)
            if node in self.lemons or self._random.random() < 1 / self._assumptions.lemon_factor:
                return node

    def drain(self, node: str, now: float) -> None:
        """Take a node out of the job; it is repaired and comes back."""
        self.away[node] = now + self._random.expovariate(1 / self._assumptions.repair)
        self.used.remove(node)
        self.lemons_used -= node in self.lemons

    def fill(self, now: float) -> float:
        """Give the job its nodes again; returns when it has them."""
        while True:
            self._return_repaired(now)
            while self.idle and len(self.used) < self.needed:
                node = self.idle.pop()
                self.used.append(node)
                self.lemons_used += node in self.lemons
            if len(self.used) == self.needed:
                return now
            now = min(self.away.values())  # nothing else can bring a node

    def _return_repaired(self, now: float) -> None:
        for node in [node for node, back in self.away.items() if back <= now]:
            del self.away[node]
            self.idle.insert(0, node)  # a node that just came back is used last

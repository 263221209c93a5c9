"""How often to save, from what a save costs and how often the job is interrupted. Pure; times are in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """`save`: how long training stands still for one checkpoint (not how long it is written in the background).
    `restart`: from the failure until training makes new steps, without the work that is done again. `mtbf`: mean time
    between two interruptions of this job."""

    save: float
    restart: float
    mtbf: float


def best_interval(costs: Costs) -> float:
    """Training time between two saves that loses the least.

    Young's first-order optimum sqrt(2 * save * mtbf) (J. W. Young, Communications of the ACM 17(9), 1974) with the
    higher-order terms of J. T. Daly, Future Generation Computer Systems 22(3), 2006, equation 37; where a save takes as
    long as two failures are apart or longer, it is the time between failures. The restart's cost does not change it.
    """
    if costs.save >= 2 * costs.mtbf:
        return costs.mtbf
    ratio = costs.save / (2 * costs.mtbf)
    return math.sqrt(2 * costs.save * costs.mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - costs.save


def lost_share(interval: float, costs: Costs) -> float:
    """Share of the wall time, 0 to 1, that saves, work done again and restarts take.

    Daly's complete model (the same paper, equation 20), with exponentially distributed failures: the wall time for one
    second of training is mtbf * exp(restart / mtbf) * (exp((interval + save) / mtbf) - 1) / interval.
    """
    exponent = (interval + costs.save + costs.restart) / costs.mtbf
    if exponent > 700:  # exp overflows: nothing is ever finished
        return 1.0
    wall = costs.mtbf * math.exp(costs.restart / costs.mtbf) * math.expm1((interval + costs.save) / costs.mtbf)
    return 1 - interval / wall


def steps_for(interval: float, step_seconds: float) -> int:
    """The interval as a number of steps, at least one."""
    return max(round(interval / step_seconds), 1)

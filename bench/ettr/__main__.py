"""Effective training time of one training at growing size, under four policies.

cd bench && python -m ettr                     # a week of training, 1,024 to 100,000 GPUs; about a minute
cd bench && python -m ettr --plot ettr.svg     # and a picture (needs matplotlib)
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import table

from ettr.policies import ExpeditedRequeue, NoFailover, PlainRequeue, Policy, SlurmFt
from ettr.training import Outcome, Training
from ettr.world import DAY, HOUR, Assumptions

SIZES = (1_024, 4_096, 16_384, 32_768, 100_000)
TARGET_ETTR, TARGET_SIZE = 0.97, 1_024

POLICIES: tuple[Callable[[Assumptions, Random], Policy], ...] = (
    NoFailover,
    PlainRequeue,
    ExpeditedRequeue,
    lambda assumptions, random: SlurmFt(assumptions, random, limit=3),
    lambda assumptions, random: SlurmFt(assumptions, random, limit=999),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One policy at one size, over all rounds."""

    gpus: int
    policy: str
    outcomes: tuple[Outcome, ...]

    @property
    def ettr(self) -> float:
        """Mean over the rounds."""
        return statistics.fmean(outcome.ettr for outcome in self.outcomes)

    def cells(self) -> Sequence[str]:
        """The row of the table."""
        days = sum(outcome.wall for outcome in self.outcomes) / DAY
        lost = (
            sum(outcome.allocated - outcome.work for outcome in self.outcomes) / len(self.outcomes) * self.gpus / HOUR
        )
        chains = [well for outcome in self.outcomes for well in outcome.chains]
        return (
            f"{self.gpus:,}",
            self.policy,
            f"{self.ettr:.3f}",
            f"{min(outcome.ettr for outcome in self.outcomes):.3f}",
            f"{sum(outcome.faults for outcome in self.outcomes) / days:.1f}",
            f"{lost:,.0f}",
            f"{sum(chains) / len(chains):.0%}",
            f"{sum(outcome.wrongly_drained for outcome in self.outcomes) / days:.2f}",
        )


HEADER = ("GPUs", "policy", "ETTR", "worst", "faults/day", "GPU hours lost", "chains well", "wrong drains/day")


def simulate(gpus: int, days: float, rounds: int, assumptions: Assumptions) -> list[Row]:
    """Every policy at one size. Each round gives all policies the same seed."""
    rows = []
    for make in POLICIES:
        outcomes = []
        for seed in range(rounds):
            random = Random(seed)
            policy = make(assumptions, random)
            outcomes.append(Training(gpus, days * DAY, policy, assumptions, random).run())
        rows.append(Row(gpus, policy.name, tuple(outcomes)))
    return rows


def main() -> None:
    """Simulate, print, and draw if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=7.0, help="training time asked for (default: 7)")
    parser.add_argument("--rounds", type=int, default=8, help="trainings for each size and policy (default: 8)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="GPUS")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw ETTR over size into this file")
    arguments = parser.parse_args()
    assumptions = Assumptions()
    rows = [row for size in arguments.sizes for row in simulate(size, arguments.days, arguments.rounds, assumptions)]
    title = f"{arguments.days:g} days of training, {arguments.rounds} rounds each, checkpoint every 5 minutes or sooner"
    table.show(title, HEADER, [row.cells() for row in rows])
    judge(rows)
    if arguments.plot:
        draw(rows, arguments.plot)


def judge(rows: Sequence[Row]) -> None:
    """The targets, as they came out."""
    ours = [row for row in rows if row.policy.startswith("slurm_ft")]
    print()
    for row in ours:
        if row.gpus == TARGET_SIZE:
            print(
                f"{row.policy}: ETTR {row.ettr:.3f} at {TARGET_SIZE:,} GPUs; target {TARGET_ETTR}: "
                + ("ok" if row.ettr >= TARGET_ETTR else "MISSED")
            )
        rival = max(
            (other for other in rows if other.gpus == row.gpus and other not in ours), key=lambda other: other.ettr
        )
        if row.ettr < rival.ettr:
            print(f"{row.policy}: {row.ettr:.3f} at {row.gpus:,} GPUs, {rival.policy} {rival.ettr:.3f}: MISSED")


def draw(rows: Sequence[Row], path: Path) -> None:
    """ETTR over the number of GPUs, one line for each policy."""
    from matplotlib.figure import Figure  # noqa: PLC0415 # only who asks for a picture needs it

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name in dict.fromkeys(row.policy for row in rows):
        points = [row for row in rows if row.policy == name]
        axes.plot([row.gpus for row in points], [row.ettr for row in points], marker="o", label=name)
    axes.set(xscale="log", xlabel="GPUs", ylabel="effective training time ratio", ylim=(0, 1))
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()

"""`slurm-ft advise`: how often this job should save, from what a save costs and how often nodes fail here."""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

from slurm_ft import config, journal
from slurm_ft.advise import observed
from slurm_ft.advise.cadence import Costs, best_interval, lost_share, steps_for
from slurm_ft.advise.observed import FailureRate, Saves
from slurm_ft.checkpoints import find_candidates
from slurm_ft.cli.checkpoint_errors import translated
from slurm_ft.errors import SlurmCommandError, SlurmFtError
from slurm_ft.slurm.cli import CommandLine

EPILOG = """\
The interval is Young's and Daly's optimum. A save costs what training waits for it: with a save in the background that
is far less than the time until it is on the disk. --output-dir measures a save from the times of past checkpoints'
files (a lower bound), and how long a step takes; --save-seconds and --step-seconds win over that.
How often a node fails is read from the controller's journal where it can be read, else, or where that
is too short, assumed (and said so).
Exit code: 0; 1 when a number is missing or makes no sense."""

# seeds: the table "how often to save" of the guide on resumable training.
WORKLOADS = {
    "experiment": "short-term experiment: once every epoch is enough",
    "standard": "standard training: every N steps or every epoch",
    "fine-tuning": "LLM fine-tuning: every fixed number of steps, and keep several versions",
    "pre-training": "LLM pre-training: by the time of a step and the cost of recovery, such as every 30 minutes",
    "reinforcement": "reinforcement learning: save model, optimizer, environment and rollout state together",
}


@dataclass(frozen=True, slots=True)
class Question:
    """All numbers together. `saves` is None when no directory was measured."""

    costs: Costs
    rate: FailureRate
    nodes: int
    step_seconds: float | None
    saves: Saves | None
    measured: bool  # the save's cost comes from the files


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, EPILOG
    parser.add_argument("--nodes", type=_count, default=1, metavar="N", help="of the job (default 1)")
    parser.add_argument("--save-seconds", type=_seconds, metavar="S", help="how long training waits for one save")
    parser.add_argument("--step-seconds", type=_seconds, metavar="S", help="how long one step takes")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="measure both from the checkpoints in it")
    parser.add_argument("--framework", default="auto", help="whose checkpoints they are (default auto)")
    parser.add_argument("--node-hours", type=_seconds, metavar="H", help="hours between two failures of one node")
    parser.add_argument(
        "--restart-seconds", type=_seconds, default=300.0, metavar="S", help="from a failure to new steps (default 300)"
    )
    parser.add_argument("--workload", choices=list(WORKLOADS), help="add the rule of thumb for it")


def run(arguments: argparse.Namespace) -> int:
    """Print the advice. Raises SlurmFtError when the cost of a save is not known."""
    question = _question(arguments)
    print("\n".join(advice(question)))
    if arguments.workload:
        print(f"rule of thumb    {WORKLOADS[arguments.workload]}")
    return 0


def advice(question: Question) -> list[str]:
    """The lines of the answer."""
    costs, rate = question.costs, question.rate
    best = best_interval(costs)
    count = question.saves.count if question.saves else 0
    lower_bound = f", median of {count} checkpoints, a lower bound" * question.measured
    lines = [
        f"a node fails     every {rate.node_hours:,.0f} hours: {rate.source}",
        f"the job          {question.nodes} node(s): a failure every {_duration(costs.mtbf)}",
        f"a save costs     {_duration(costs.save)} of training{lower_bound}",
        f"save every       {_duration(best)}{_steps(best, question.step_seconds)}",
    ]
    for name, interval in (("at half of that", best / 2), ("at that", best), ("at twice that", 2 * best)):
        lines.append(f"{name:<16} {lost_share(interval, costs):.1%} of the time is lost")
    return [*lines, *_too_dear(best, costs.save), *_present(question)]


def _too_dear(best: float, save: float) -> list[str]:
    """The formula has an answer even then, but nobody would train like that."""
    if best >= save:
        return []
    return ["note             that interval is shorter than the save: save in the background, or to a faster disk"]


def _present(question: Question) -> list[str]:
    """What the cadence that the checkpoints show costs."""
    saves, step_seconds = question.saves, question.step_seconds
    if saves is None or saves.interval_steps is None or step_seconds is None:
        return []
    interval = saves.interval_steps * step_seconds
    share = lost_share(interval, question.costs)
    return [f"now              every {saves.interval_steps} steps ({_duration(interval)}): {share:.1%} is lost"]


def _question(arguments: argparse.Namespace) -> Question:
    saves = _measure(arguments.output_dir, arguments.framework) if arguments.output_dir else None
    save = arguments.save_seconds or (saves.write_seconds if saves else None)
    if save is None:
        raise SlurmFtError(
            "how long a save takes is not known",
            "Give --save-seconds, or an --output-dir with checkpoints of more than one file",
        )
    rate = _rate(arguments.node_hours)
    return Question(
        costs=Costs(save, arguments.restart_seconds, rate.node_hours * 3600 / arguments.nodes),
        rate=rate,
        nodes=arguments.nodes,
        step_seconds=arguments.step_seconds or (saves.step_seconds if saves else None),
        saves=saves,
        measured=not arguments.save_seconds,
    )


def _measure(directory: Path, framework: str) -> Saves:
    with translated():
        entries = find_candidates(directory, framework).entries
    try:
        return observed.saves([(entry.step, entry.path) for entry in entries])
    except OSError as error:
        raise SlurmFtError(f"{directory}: {error}", "Give --save-seconds instead") from error


def _rate(node_hours: float | None) -> FailureRate:
    if node_hours is not None:
        return FailureRate(node_hours, "as given")
    try:
        settings = config.load()
        entries = journal.entries(settings.state_dir)
        nodes = len(CommandLine.of(settings).impatient().nodes()) if entries else 0
    except (OSError, SlurmCommandError):
        return observed.published_rate()
    return observed.failure_rate(entries, nodes, time.time()) or observed.published_rate()


def _steps(interval: float, step_seconds: float | None) -> str:
    return "" if step_seconds is None else f" = every {steps_for(interval, step_seconds)} steps of {step_seconds:.3g} s"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return value

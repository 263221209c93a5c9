"""`slurm-ft pause`: at once no node is drained and no job requeued any more, in the whole cluster."""

from __future__ import annotations

import argparse
import getpass
import time

from slurm_ft import config
from slurm_ft.failover import actions, brake
from slurm_ft.failover.brake import Brake, Kind
from slurm_ft.slurm.cli import CommandLine


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("why", nargs="*", help="a few words for the others, such as: new driver")
    parser.epilog = (
        "For root and Slurm's operators, on any machine of the cluster. Every hook looks right before it acts, so this "
        "works at once. What fails meanwhile is journaled and not made up for. `slurm-ft unpause` ends it."
    )


def run(arguments: argparse.Namespace) -> int:
    """Put the brake on."""
    slurm = CommandLine.of(config.load())
    nodes = slurm.nodes()
    why = ": ".join(part for part in (getpass.getuser(), " ".join(arguments.why)) if part)
    mark = Brake(Kind.PAUSED, time.time(), why)
    actions.put_on_brake(slurm, nodes, mark)
    carriers = ", ".join(node.name for node in brake.carriers(nodes))
    print(f"{mark}: no node is drained and no job requeued until `slurm-ft unpause`")
    print(f"marked in the Comment of {carriers}")
    return 0

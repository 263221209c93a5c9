"""`slurm-ft unpause`: failovers go on after `slurm-ft pause`, or after the breaker has opened."""

from __future__ import annotations

import argparse
import getpass
import time

from slurm_ft import config
from slurm_ft.failover import actions, brake
from slurm_ft.failover.brake import Brake, Kind
from slurm_ft.slurm.cli import CommandLine


def configure(parser: argparse.ArgumentParser) -> None:
    """Say what it does."""
    parser.epilog = (
        "For root and Slurm's operators. The breaker counts anew from now on; nodes that are drained stay drained "
        "(`slurm-ft nodes` lists them, `slurm-ft undrain` returns one)."
    )


def run(_: argparse.Namespace) -> int:
    """Take the brake off."""
    slurm = CommandLine.of(config.load())
    nodes = slurm.nodes()
    held = brake.in_force(nodes)
    if held is None:
        print("failover is neither paused nor stopped by the breaker")
        return 0
    actions.put_on_brake(slurm, nodes, Brake(Kind.OFF, time.time(), getpass.getuser()))
    print(f"failovers go on; before, {held}")
    return 0

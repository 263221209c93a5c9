"""`slurm-ft nodes`: the nodes that we drained, why, what NVIDIA says to do, and which ones keep failing."""

from __future__ import annotations

import argparse
import sys
import time

from slurm_ft import config
from slurm_ft.cli import journal_access
from slurm_ft.cli.screen import print_table, screen_of
from slurm_ft.failover import brake
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.status import fleet


def configure(parser: argparse.ArgumentParser) -> None:
    """Say what is shown."""
    parser.epilog = (
        "FAULTS and JOBS count what stands in the nodes' Reasons and, for root or SlurmUser on the controller, in the "
        "journal of the last lemon_window seconds; the rest is the last fault's. SINCE is when the node was drained. "
        "A repeat offender failed, was returned, and failed again; it is listed while it is in service, too."
    )


def run(_: argparse.Namespace) -> int:
    """Print the table."""
    settings = config.load()
    nodes = CommandLine.of(settings).impatient().nodes()
    if held := brake.in_force(nodes):
        print(f"{held}: nothing is drained or requeued until `slurm-ft unpause`\n")
    unseen: list[str] = []
    entries = journal_access.read(settings, unseen)
    shown = fleet.views(nodes, entries, time.time() - settings.lemon_window)
    if shown:
        print_table(fleet.table(shown, screen_of(sys.stdout)), sys.stdout)
    else:
        print(f"none of {len(nodes)} nodes is drained by slurm_ft")
    for what in unseen:
        print(f"not seen: {what}; faults before a node's last return are missing")
    return 0

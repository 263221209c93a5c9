"""`slurm-ft nodes`: the nodes that we drained, why, what NVIDIA says to do, and which ones keep failing."""

from __future__ import annotations

import argparse
import time

from slurm_ft import config, journal
from slurm_ft.config import Config
from slurm_ft.failover import brake
from slurm_ft.journal_entry import Entry
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.status import fleet


def configure(parser: argparse.ArgumentParser) -> None:
    """Say what is shown."""
    parser.epilog = (
        "FAULTS and JOBS count what stands in the nodes' Reasons and, for root or SlurmUser on the controller, in the "
        "journal of the last lemon_window seconds. A repeat offender failed, was returned, and failed again."
    )


def run(_: argparse.Namespace) -> int:
    """Print the table."""
    settings = config.load()
    nodes = CommandLine.of(settings).impatient().nodes()
    if held := brake.in_force(nodes):
        print(f"{held}: nothing is drained or requeued until `slurm-ft unpause`\n")
    entries, unseen = _journal(settings)
    shown = fleet.views(nodes, entries, time.time() - settings.lemon_window)
    print(fleet.table(shown) if shown else f"none of {len(nodes)} nodes is drained by slurm_ft")
    if unseen:
        print(f"not seen: {unseen}; faults before a node's last return are missing")
    return 0


def _journal(settings: Config) -> tuple[list[Entry], str]:
    path = settings.state_dir / journal.FILE_NAME
    try:
        if path.exists():
            return journal.entries(settings.state_dir), ""
    except OSError as error:
        return [], f"{path}: {error.strerror}"
    return [], f"the journal (no {path} on this machine)"

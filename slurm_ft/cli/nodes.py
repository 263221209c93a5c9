"""`slurm-ft nodes`: the nodes that we drained, why, what NVIDIA says to do, and which ones keep failing."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict

from slurm_ft import config
from slurm_ft.classify.advice import asked
from slurm_ft.cli import journal_access
from slurm_ft.cli.screen import print_table, screen_of
from slurm_ft.failover import brake
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.status import fleet
from slurm_ft.status.fleet import NodeView

SCHEMA_VERSION = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments, and say what is shown."""
    parser.add_argument("--json", action="store_true", help="print JSON (docs/formats.md)")
    parser.epilog = (
        "FAULTS and JOBS count what stands in the nodes' Reasons and, for root or SlurmUser on the controller, in the "
        "journal of the last lemon_window seconds; the rest is the last fault's. SINCE is when the node was drained. "
        "A repeat offender failed, was returned, and failed again; it is listed while it is in service, too."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    settings = config.load()
    nodes = CommandLine.of(settings).impatient().nodes()
    held = brake.in_force(nodes)
    unseen: list[str] = []
    entries = journal_access.read(settings, unseen)
    shown = fleet.views(nodes, entries, time.time() - settings.lemon_window)
    if arguments.json:
        print(json.dumps(_object(shown, str(held or ""), unseen)))
        return 0
    if held:
        print(f"{held}: nothing is drained or requeued until `slurm-ft unpause`\n")
    if shown:
        print_table(fleet.table(shown, screen_of(sys.stdout)), sys.stdout)
    else:
        print(f"none of {len(nodes)} nodes is drained by slurm_ft")
    for what in unseen:
        print(f"not seen: {what}; faults before a node's last return are missing")
    return 0


def _object(shown: list[NodeView], held: str, unseen: list[str]) -> dict[str, object]:
    return {"v": SCHEMA_VERSION, "held": held or None, "nodes": [_node(view) for view in shown], "unseen": unseen}


def _node(view: NodeView) -> dict[str, object]:
    return {
        "node": view.node.name,
        "states": sorted(view.node.states),
        "reason": view.node.reason,
        "drained": view.drained,
        "since": view.since,
        "repeat_offender": view.repeats,
        "action": (asked(view.faults[-1].cause) if view.faults else "") or None,
        "faults": [asdict(fault) for fault in view.faults],
    }

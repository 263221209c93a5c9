"""`slurm-ft check-node`: looks at the GPUs of this node while no job is on it."""

from __future__ import annotations

import argparse
import json
import os
import socket

from slurm_ft import config
from slurm_ft.node import attempt_file
from slurm_ft.node.check import NodeCheck, check_node, refuse_busy
from slurm_ft.sensors.kernel_lines import printable
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.environment import NODE_NAME

UNHEALTHY = 3


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--node", metavar="NAME", help="the node's name in Slurm (default: the short host name)")
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="seconds for dcgmi diag (default: 300)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = (
        "Asks NVML, and runs `dcgmi diag -r 1` where DCGM is installed. Exit code 0: nothing wrong was found; "
        f"{UNHEALTHY}: something was, or nothing could be asked; 1: refused, since a job is on the node."
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, and print what was found."""
    settings = config.load()
    node = arguments.node or os.environ.get(NODE_NAME) or socket.gethostname().partition(".")[0]
    run_dir = attempt_file.run_dir()
    refuse_busy(CommandLine.of(settings), run_dir, node)
    checked = check_node(settings, run_dir, node, arguments.timeout)
    print(json.dumps(_object(node, checked)) if arguments.json else text_of(node, checked))
    return 0 if checked.healthy else UNHEALTHY


def _object(node: str, checked: NodeCheck) -> dict[str, object]:
    lines = [{"level": line.level.value, "check": line.check, "text": line.text} for line in checked.lines]
    return {"node": node, "healthy": checked.healthy, "ran": checked.ran, "lines": lines}


def text_of(node: str, checked: NodeCheck) -> str:
    """What was found, a line each, and the sum of it."""
    word = "nothing wrong was found" if checked.healthy else "NOT healthy" if checked.ran else "nothing could be asked"
    lines = [f"{line.level.value:<8} {line.check}: {printable(line.text)}" for line in checked.lines]
    return "\n".join((*lines, f"node {node}: {word}; ran: {', '.join(checked.ran) or 'no check'}"))

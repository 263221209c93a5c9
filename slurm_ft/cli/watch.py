"""`slurm-ft watch`: runs on a compute node until SIGTERM."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from types import FrameType

from slurm_ft import config
from slurm_ft.errors import SlurmFtError
from slurm_ft.log import open_log
from slurm_ft.node import attempt_file, single
from slurm_ft.node.hanging import Place
from slurm_ft.node.watch import watch
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.environment import NODE_NAME

NAME = "watch"
ASK_S = 10.0  # seconds that a controller may take to say whether it knows the node


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--node", metavar="NAME", help="the node's name in Slurm (default: the short host name)")


def run(arguments: argparse.Namespace) -> int:
    """Watch this node. Returns only through a signal or an error."""
    signal.signal(signal.SIGTERM, _stop)
    settings = config.load()
    node = arguments.node or os.environ.get(NODE_NAME) or socket.gethostname().partition(".")[0]
    run_dir = attempt_file.run_dir()
    single.hold(run_dir / f"watch.{node}.lock")
    log = open_log(settings, NAME)
    log.info("watching node %s, mode %s, grace %g s", node, settings.mode.value, settings.watch_grace)
    sys.stderr.write(f"slurm-ft: watching node {node} (mode {settings.mode.value})\n")
    slurm = CommandLine.of(settings)
    if _is_unknown(slurm.impatient().within(ASK_S), node):
        what = f"Slurm knows no node {node}: no job of it will be found. Say its name in Slurm with --node"
        log.error("%s", what)
        sys.stderr.write(f"slurm-ft: {what}\n")
    watch(Place(settings, node, run_dir, slurm, log))
    return 0


def _is_unknown(slurm: CommandLine, node: str) -> bool:
    """Whether Slurm says so. It may be down, or come up later: the watch begins all the same."""
    try:
        return not slurm.nodes(node)
    except SlurmFtError:
        return False


def _stop(_number: int, _frame: FrameType | None) -> None:
    """At once: all that matters is in files, and a Slurm command under way is ended with us."""
    sys.exit(0)

"""`slurm-ft undrain NODE`: return a node that we drained to service, once the checks on it are passed."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Sequence

from slurm_ft import config
from slurm_ft.classify.advice import asked, in_words
from slurm_ft.cli.check_node import UNHEALTHY, text_of
from slurm_ft.config import Config
from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import actions, node_record
from slurm_ft.model import NodeVerdict
from slurm_ft.node import attempt_file
from slurm_ft.node.check import refuse_busy
from slurm_ft.node.return_check import boot_time, check_return, unproven
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.environment import NODE_NAME
from slurm_ft.slurm.protocol import NodeRecord


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("node", metavar="NODE")
    parser.add_argument("--here", action="store_true", help="this machine is NODE, though it has another name")
    parser.add_argument("--force", action="store_true", help="return it whatever the checks say, or without any")
    parser.epilog = (
        "For root, on the node itself: asks NVML, `dcgmi diag -r 1` and the kernel log since the drain. Only a drain "
        f"whose Reason is ours is undone. Exit code 0: returned; {UNHEALTHY}: the checks say no; 1: refused."
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, then return the node."""
    settings, name = config.load(), str(arguments.node)
    slurm = CommandLine.of(settings)
    node = _ours(next(iter(slurm.nodes(name)), None), name)
    faults = node_record.in_reason(node.reason, name)
    for fault in faults:
        says = in_words(asked(fault.cause))
        print(f"drained for {fault.cause} (job {fault.raw_id}.{fault.attempt}){f', NVIDIA says {says}' * bool(says)}")
    if not arguments.force and not _checked(slurm, settings, name, faults, here=arguments.here):
        print(f"node {name} stays drained; --force returns it all the same")
        return UNHEALTHY
    print(actions.undrain(slurm, name))
    return 0


def _ours(node: NodeRecord | None, name: str) -> NodeRecord:
    """Raises SlurmFtError for a node that is not ours to return."""
    if node is None:
        raise SlurmFtError(f"Slurm knows no node {name}", "`slurm-ft nodes` lists those that slurm_ft drained")
    if "drain" not in node.states:
        raise SlurmFtError(f"node {name} is not drained", "`slurm-ft nodes` lists those that slurm_ft drained")
    if not node_record.is_ours(node.reason):
        hint = f"Return it with scontrol update NodeName={name} State=RESUME, if that is right"
        raise SlurmFtError(f"node {name} was drained by somebody else: {node.reason}", hint)
    return node


def _checked(slurm: CommandLine, settings: Config, name: str, faults: Sequence[NodeVerdict], *, here: bool) -> bool:
    own = os.environ.get(NODE_NAME) or socket.gethostname().partition(".")[0]
    if not here and name != own:
        hint = "Run it there, or say --here if this machine is that node, or --force to return it unchecked"
        raise SlurmFtError(f"the GPUs of {name} cannot be checked from {own}", hint)
    run_dir = attempt_file.run_dir()
    refuse_busy(slurm, run_dir, name)
    checked = check_return(settings, run_dir, name, slurm.cluster())
    print(text_of(name, checked))
    for doubt in unproven(name, checked, faults, boot_time()):
        print(f"warning  {doubt}")
    return checked.healthy

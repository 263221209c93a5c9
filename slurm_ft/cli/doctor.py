"""`slurm-ft doctor`: check the way of a fault, stage by stage; `--canary` sends a made-up one along it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from slurm_ft import config
from slurm_ft.cli.check_node import UNHEALTHY
from slurm_ft.doctor import canary
from slurm_ft.doctor.examine import Examination, examine
from slurm_ft.doctor.finding import Finding, Level, healthy, text_of
from slurm_ft.errors import SlurmFtError
from slurm_ft.install.change import Role

SCHEMA_VERSION = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--role",
        action="append",
        default=[],
        choices=[role.value for role in Role],
        help="what this machine is (default: what slurm.conf says); may be given twice",
    )
    parser.add_argument("--node", default="", metavar="NAME", help="the node's name in Slurm (default: by host name)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--canary", metavar="NODE", help="fail over a small job of our own on this node, on the node")
    parser.add_argument("--yes", action="store_true", help="with --canary: yes, drain that node for a while")
    parser.add_argument("--here", action="store_true", help="with --canary: this machine is NODE, under another name")
    parser.add_argument("--user", metavar="NAME", help="with --canary: who submits the job (default: root)")
    parser.add_argument("--partition", metavar="NAME", help="with --canary: where (default: Slurm's)")
    parser.epilog = (
        "Each line is ok, warning or fail, with what to do. Nothing of the cluster is changed without --canary; a line "
        "without meaning goes into the kernel log of a node. Run it as root. Exit code 0: nothing fails; "
        f"{UNHEALTHY}: something does."
    )


def run(arguments: argparse.Namespace) -> int:
    """Examine, or run the canary."""
    if arguments.canary:
        return _canary(arguments)
    found = examine([Role(name) for name in arguments.role], arguments.node)
    print(json.dumps(_object(found)) if arguments.json else _text(found))
    return 0 if healthy(found.findings) else UNHEALTHY


def _canary(arguments: argparse.Namespace) -> int:
    wishes = canary.Wishes(arguments.canary, arguments.user, arguments.partition, here=arguments.here)
    settings = config.load()
    if not arguments.yes:
        what = f"the canary drains node {wishes.node} for some seconds, and returns it"
        raise SlurmFtError(what, "Say --yes if that may be")
    found = []
    for finding in canary.run(settings, wishes):
        found.append(finding)
        if not arguments.json:
            print(text_of(finding), flush=True)
    if arguments.json:
        print(json.dumps({"v": SCHEMA_VERSION, "canary": wishes.node, "findings": _objects(found)}))
    return 0 if healthy(tuple(found)) else UNHEALTHY


def _object(found: Examination) -> dict[str, object]:
    roles = [role.value for role in Role if role in found.machine.roles]
    return {
        "v": SCHEMA_VERSION,
        "roles": roles,
        "node": found.machine.node,
        "healthy": healthy(found.findings),
        "findings": _objects(found.findings),
    }


def _objects(findings: Sequence[Finding]) -> list[dict[str, str]]:
    return [{"stage": one.stage.value, "level": one.level.value, "what": one.what, "fix": one.fix} for one in findings]


def _text(found: Examination) -> str:
    lines = [text_of(finding) for finding in found.findings]
    counts = {level: sum(one.level is level for one in found.findings) for level in Level}
    told = ", ".join(f"{number} {level.value}" for level, number in counts.items())
    where = f" {found.machine.node}" if found.machine.node else ""
    return "\n".join((*lines, f"this machine: {found.machine.names or 'unknown'}{where}; {told}"))

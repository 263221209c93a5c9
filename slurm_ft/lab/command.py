"""`slurm-ft lab up|down|status`."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_ft.errors import SlurmFtError
from slurm_ft.lab import record
from slurm_ft.lab.cluster import Lab
from slurm_ft.lab.errors import LabError
from slurm_ft.lab.spec import NO_HOOKS, LabSpec
from slurm_ft.node.attempt_file import RUN_DIR_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence


def configure(parser: argparse.ArgumentParser) -> None:
    """Add `up`, `down` and `status` to the parser of `slurm-ft lab`."""
    commands = parser.add_subparsers(dest="lab_command", required=True, metavar="up|down|status")
    up = commands.add_parser("up", help="start a cluster; it stays up after this command ends")
    up.add_argument("--nodes", type=int, default=3, metavar="N", help="number of nodes (default: 3)")
    up.add_argument("--gpus", type=int, default=2, metavar="G", help="GPUs per node (default: 2)")
    up.add_argument("--slurm", type=Path, metavar="PREFIX", help="use the Slurm in PREFIX/sbin and PREFIX/bin")
    up.add_argument("--dir", type=Path, metavar="DIR", help="where to put it (default: a new directory in /tmp)")
    up.add_argument("--user", default="nobody", help="the ordinary account that submits jobs (default: nobody)")
    up.add_argument("--no-hooks", action="store_true", help="plain Slurm, without slurm_ft's prolog and epilog")
    down = commands.add_parser("down", help="end a cluster and remove its directory")
    which = down.add_mutually_exclusive_group()
    which.add_argument("--dir", type=Path, metavar="DIR", help="the directory of the cluster")
    which.add_argument("--all", action="store_true", help="all clusters, also those whose starter crashed")
    commands.add_parser("status", help="list the clusters on this machine")


def run(args: argparse.Namespace) -> int:
    """Carry out what the parser of `configure` parsed."""
    commands = {"up": _up, "down": _down, "status": _status}
    return commands[args.lab_command](args)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m slurm_ft.lab`."""
    parser = argparse.ArgumentParser(prog="slurm-ft lab", description="A real Slurm cluster on this machine.")
    configure(parser)
    try:
        return run(parser.parse_args(argv))
    except SlurmFtError as error:
        _progress(f"slurm-ft: {error}")
        return error.exit_code


def _up(args: argparse.Namespace) -> int:
    spec = LabSpec(
        nodes=args.nodes,
        gpus_per_node=args.gpus,
        slurm_prefix=args.slurm,
        base=args.dir,
        user=args.user,
        hooks=NO_HOOKS if args.no_hooks else {},
    )
    lab = Lab(spec, say=_progress).start()
    _progress(f"The cluster is up. Its logs: {lab.layout.log}")
    _print(f"export SLURM_CONF={shlex.quote(str(lab.slurm_conf))}")
    _print(f"export SLURM_FT_CONFIG={shlex.quote(str(lab.layout.config))}")
    _print(f"export {RUN_DIR_VARIABLE}={shlex.quote(str(lab.layout.run / 'slurm_ft'))}")
    for line in _what_next(lab):
        _print(f"# {line}")
    return 0


def _what_next(lab: Lab) -> list[str]:
    user = lab.spec.user
    home = lab.environment(user)["HOME"]
    return [
        f"cd {lab.shared}  # all nodes share it",
        f"HOME={home} runuser -u {user} -- {lab.slurm_bin}/sbatch --comment='[slurm_ft]' --gres=gpu:1 "
        "--open-mode=append --wrap='hostname; sleep 60'",
        f"{lab.slurm_bin}/squeue; {lab.slurm_bin}/sinfo",
        *(() if lab.spec.hooks == NO_HOOKS else _fault(lab)),
        f"slurm-ft lab down --dir {lab.base}",
    ]


def _fault(lab: Lab) -> list[str]:
    node = lab.nodes[0]
    pci = lab.pci(node, 0).removesuffix(".0")
    xid = f"NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    return [
        f'echo "{xid}" > /dev/kmsg  # the first GPU of {node} is lost, as its driver would say it',
        f"{lab.slurm_bin}/scancel --signal=KILL --batch JOB  # and the job on it dies; then: slurm-ft status",
    ]


def _down(args: argparse.Namespace) -> int:
    return max((_end(base) for base in _chosen(args)), default=0)


def _end(base: Path) -> int:
    """One that cannot be ended must not keep the others up."""
    try:
        Lab.attach(base, say=_progress).stop()
    except SlurmFtError as error:
        _progress(f"slurm-ft: {error}")
        return error.exit_code
    _progress(f"The cluster in {base} has ended")
    return 0


def _chosen(args: argparse.Namespace) -> list[Path]:
    if args.dir is not None:
        return [args.dir.absolute()]
    known = record.known_bases()
    if len(known) > 1 and not args.all:
        raise LabError(
            f"there are {len(known)} clusters: {', '.join(map(str, known))}", "Choose with --dir, or use --all."
        )
    if not known:
        _progress("No cluster is running.")
    return known


def _status(_: argparse.Namespace) -> int:
    known = record.known_bases()
    for base in known:
        _print(_describe(base))
    if not known:
        _print("No cluster is running. `slurm-ft lab up` starts one.")
    return 0


def _describe(base: Path) -> str:
    try:
        found = record.read_record(base)
        alive, total = len(found.alive), len(found.processes)
        if alive < total or not total:
            return f"{base}: {alive} of {total} daemons run; end it with `slurm-ft lab down --dir {base}`"
        nodes = Lab.attach(base).run("sinfo", "--noheader", "-o", "%N %T").split("\n")
        return f"{base}: up, {', '.join(filter(None, nodes))}; export SLURM_CONF={found.layout.slurm_conf}"
    except SlurmFtError as error:
        return f"{base}: {error}"


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")

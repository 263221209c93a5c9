"""`slurm-ft status [JOB …]`: squeue with the failovers in it, for any user on any login node."""

from __future__ import annotations

import argparse
import sys

from slurm_ft import config
from slurm_ft.errors import SlurmCommandError, SlurmFtError
from slurm_ft.failover import brake
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord
from slurm_ft.status import render, view

STATES = """\
STATE is what Slurm says, or for a job that asked for failover:
  Pending - failoverinprogress   hardware failed, or it is being judged; about to start elsewhere
  Pending - internalerror        ended without a hardware signal: not retried
  Pending - maxretriesexceeded   hardware failed once more after the last allowed failover
  Pending - imagepullbackoff     the container image could not be loaded
  Failed                         failover was not asked for, or the job cannot be requeued
ATTEMPT counts what spends a failover: 2/4 is the second of at most four. CAUSE is the last failure's.
Exit code: 0; 1 when a named job is unknown or Slurm does not answer."""

# Given to squeue as they are: option -> (metavar, help)
FILTERS = {
    "-u": ("--user", "USERS", "only jobs of these users"),
    "-p": ("--partition", "PARTITIONS", "only jobs of these partitions"),
    "-t": ("--states", "STATES", "only jobs in these states of Slurm (default: all it remembers)"),
    "-w": ("--nodelist", "NODES", "only jobs on these nodes"),
    "-n": ("--name", "NAMES", "only jobs with these names"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, STATES
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="show only these jobs, each with its story")
    parser.add_argument("-H", "--noheader", action="store_true", help="leave the header out")
    parser.add_argument("--me", action="store_true", help="only my own jobs")
    for short, (name, metavar, text) in FILTERS.items():
        parser.add_argument(short, name, dest=name, metavar=metavar, help=text)


def run(arguments: argparse.Namespace) -> int:
    """Print the table; with jobs named, their stories below it. Exit code 1 when a named job is unknown to Slurm."""
    settings = config.load()
    slurm = CommandLine.of(settings).impatient()
    jobs, nodes = _jobs(slurm, arguments), slurm.nodes()
    shown = view.views(jobs, nodes, settings)
    if held := brake.in_force(nodes):
        print(f"{held}: no job fails over until an admin runs `slurm-ft unpause`", file=sys.stderr)
    if table := render.table(shown, header=not arguments.noheader):
        print(table)
    for job in shown if arguments.jobs else ():
        print(f"\n{render.story(job)}")
    return 0


def _jobs(slurm: CommandLine, arguments: argparse.Namespace) -> list[JobRecord]:
    named = ", ".join(arguments.jobs)
    try:
        found = slurm.jobs(_filters(arguments))
    except SlurmCommandError as error:
        if not named or "nvalid job id" not in error.output:
            raise
        found = []
    if named and not found:
        raise SlurmFtError(f"Slurm knows no job {named}", "It forgets one some minutes after its end (MinJobAge)")
    return found


def _filters(arguments: argparse.Namespace) -> list[str]:
    values = vars(arguments)
    given = [f"{name}={values[name]}" for name, _, _ in FILTERS.values() if values[name]]
    if arguments.me:
        given.append("--me")
    if arguments.jobs:
        given.append(f"--jobs={','.join(arguments.jobs)}")
    return given

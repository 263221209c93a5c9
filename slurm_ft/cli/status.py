"""`slurm-ft status [JOB …]`: squeue with the failovers in it, for any user on any login node."""

from __future__ import annotations

import argparse

from slurm_ft import config
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.status import render, view

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
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="show only these jobs, each with its story")
    parser.add_argument("-H", "--noheader", action="store_true", help="leave the header out")
    parser.add_argument("--me", action="store_true", help="only my own jobs")
    for short, (name, metavar, text) in FILTERS.items():
        parser.add_argument(short, name, dest=name, metavar=metavar, help=text)


def run(arguments: argparse.Namespace) -> int:
    """Print the table; with jobs named, their stories below it. Exit code 1 when a named job is unknown to Slurm."""
    settings = config.load()
    slurm = CommandLine.of(settings)
    shown = view.views(slurm.jobs(_filters(arguments)), slurm.nodes(), settings)
    if table := render.table(shown, header=not arguments.noheader):
        print(table)
    for job in shown if arguments.jobs else ():
        print(f"\n{render.story(job)}")
    return 0 if shown or not arguments.jobs else 1


def _filters(arguments: argparse.Namespace) -> list[str]:
    values = vars(arguments)
    given = [f"{name}={values[name]}" for name, _, _ in FILTERS.values() if values[name]]
    if arguments.me:
        given.append("--me")
    if arguments.jobs:
        given.append(f"--jobs={','.join(arguments.jobs)}")
    return given

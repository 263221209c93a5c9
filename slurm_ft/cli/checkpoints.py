"""`slurm-ft checkpoints list|validate|restore DIR`: what is there, is it sound, and what was moved aside.

`list` looks quickly, `validate` at the structure and at which parts of the training's state are there; `--level deep`
reads every byte. Both change nothing. Exit codes: 0 if all are valid or degraded, 1 if one is not (`validate` only), 66
if there is none, 74 if the storage did not answer for one.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_ft.checkpoints import CheckpointError, Level, Request, Verdict, printable, quarantined, restore
from slurm_ft.checkpoints.layouts import BY_NAME
from slurm_ft.checkpoints.survey import Survey, survey
from slurm_ft.cli import given
from slurm_ft.cli.checkpoint_errors import translated
from slurm_ft.cli.checkpoint_table import as_json, state_table, table
from slurm_ft.cli.progress_bar import ProgressBar

if TYPE_CHECKING:
    import argparse

LEVELS = {level.word: level for level in Level}
NOT_ALL_VALID, NONE_FOUND, UNREADABLE = 1, 66, 74  # the latter two of sysexits.h


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their arguments."""
    commands = parser.add_subparsers(dest="checkpoints_command", required=True, metavar="list|validate|restore")
    for name, level, summary in (
        ("list", Level.QUICK, "a table of all checkpoints"),
        ("validate", Level.STRUCTURAL, "the same, looked at more closely, with the parts of the state that are there"),
    ):
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument(
            "directory", type=given.directory, metavar="DIR", help="an output directory, or one checkpoint"
        )
        command.add_argument("--framework", choices=("auto", *BY_NAME), default="auto", help="default: auto")
        command.add_argument("--level", choices=tuple(LEVELS), default=level.word, help=f"default: {level.word}")
        command.add_argument(
            "--budget", type=given.seconds, metavar="SECONDS", help="for reading it (default: no limit)"
        )
        command.add_argument("--world-size", type=given.ranks, metavar="N", help="ranks of the job that is to load it")
        command.add_argument("--json", action="store_true", help="as one JSON object")
    back = commands.add_parser("restore", help="move back what was moved aside")
    back.add_argument("directory", type=given.directory, metavar="DIR", help="the output directory")
    back.add_argument("names", nargs="*", metavar="NAME", help="only these (default: all)")


def run(args: argparse.Namespace) -> int:
    """Run the sub-command."""
    with translated():
        if args.checkpoints_command == "restore":
            return _restore(args.directory, args.names)
        deadline = None if args.budget is None else time.monotonic() + args.budget
        request = Request(LEVELS[args.level], args.world_size, deadline, ProgressBar(sys.stderr))
        found = survey(args.directory, args.framework, request)
    _show(found, args)
    return _exit_code(found, validating=args.checkpoints_command == "validate")


def _show(found: Survey, args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps(as_json(found), indent=1))
    elif not found.rows:
        print(f"no checkpoint in {printable(str(found.directory))}")
    else:
        print(table(found))
        if args.checkpoints_command == "validate":
            print(f"\n{state_table(found)}")


def _exit_code(found: Survey, *, validating: bool) -> int:
    if not found.rows:
        return NONE_FOUND
    worst = found.worst
    if worst is Verdict.UNREADABLE:
        return UNREADABLE
    return NOT_ALL_VALID if worst is not None and validating else 0


def _restore(directory: Path, names: list[str]) -> int:
    """Move back all, or those named; what cannot be moved back is said, and the others are."""
    aside = [moved for moved in quarantined(directory) if not names or moved.origin.name in names]
    if not aside:
        print(f"nothing of {printable(str(directory))} was moved aside", file=sys.stderr)
        return NONE_FOUND
    failed = 0
    for moved in aside:
        try:
            restore(moved)
        except CheckpointError as error:
            print(f"slurm-ft: {error}", file=sys.stderr)
            failed = NOT_ALL_VALID
        else:
            print(f"{printable(str(moved.origin))} is back ({printable(moved.reason)})")
    return failed

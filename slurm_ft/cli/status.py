"""`slurm-ft status [JOB …]`: squeue with the failovers in it, for any user on any login node."""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from slurm_ft import config
from slurm_ft.cli import status_jobs
from slurm_ft.cli.screen import print_table, print_text, screen_of
from slurm_ft.cli.status_jobs import Found
from slurm_ft.errors import SlurmFtError, UsageError
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.status import as_json, fields, render, selection, story
from slurm_ft.status.render import BY_DEFAULT
from slurm_ft.status.selection import Order, States
from slurm_ft.status.view import JobView

STORIES = 5  # of one command: a page, not a book
HELP = ("--help",)  # -h means what it means to squeue
T = TypeVar("T")
EPILOG = f"""\
STATE is what Slurm says, or for a job that asked for failover:
  Pending - failoverinprogress   hardware failed, or it is being judged; about to start elsewhere
  Pending - internalerror        ended without a hardware signal: not retried
  Pending - maxretriesexceeded   hardware failed once more after the last allowed failover
  Pending - imagepullbackoff     the container image could not be loaded
  Failed                         failover was not asked for, or the job cannot be requeued
ATTEMPT counts what spends a failover: 2/4 is the second of at most four. CAUSE is the last failure's. LAST_STEP is
where the last attempt started, CHECKPOINT how long ago that step's checkpoint was written; a newer one may exist.

fields for --format and --sort (docs/status.md says what each means):
{textwrap.fill(" ".join(fields.ALL), 100, initial_indent="  ", subsequent_indent="  ")}

On a terminal, columns that find no room are left out, and a line below says which; what was cut ends with `+`.
In a pipe nothing is cut. NO_COLOR switches colours off.
Exit code: 0; 1 when a named job is unknown or Slurm does not answer; 2 when an option makes no sense."""

# Given to squeue as they are: option -> (long option, metavar, help)
FILTERS = {
    "-j": ("--jobs", "JOBS", "only these jobs, as a table"),
    "-u": ("--user", "USERS", "only jobs of these users"),
    "-p": ("--partition", "PARTITIONS", "only jobs of these partitions"),
    "-w": ("--nodelist", "NODES", "only jobs on these nodes"),
    "-n": ("--name", "NAMES", "only jobs with these names"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, EPILOG
    parser.add_argument("named", nargs="*", metavar="JOB", help="the story of these jobs in place of the table")
    for short, (name, metavar, text) in FILTERS.items():
        parser.add_argument(short, name, dest=name, metavar=metavar, help=text)
    parser.add_argument("--me", action="store_true", help="only my own jobs")
    add = parser.add_argument
    add("-t", "--states", type=_read(selection.states), default=States(), metavar="STATES",
        help="only jobs in these states: Slurm's (R, FAILED) or ours (failoverinprogress); default: all")  # fmt: skip
    add("-S", "--sort", type=_read(selection.order), default=Order(), metavar="FIELDS",
        help="by these fields, such as -attempt,jobid (-: greatest first); default: squeue's order")  # fmt: skip
    add("-o", "--format", type=_read(selection.fields), default=BY_DEFAULT, metavar="FIELDS",
        help="these fields, such as jobid,state:30,cause; +FIELDS: besides the usual ones; all")  # fmt: skip
    add("-h", "--noheader", action="store_true", help="leave the header out")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--parsable", action="store_true", help="fields with a | between; a | in a value is %%7C")
    form.add_argument("--json", action="store_true", help="everything that is known, also about each attempt")
    add("-i", "--iterate", type=_seconds, metavar="SECONDS", help="again every so many seconds, until Ctrl-C")
    add("--since", metavar="TIME", help="also finished jobs that Slurm has forgotten, from sacct: now-2days")


def prepare(given: Sequence[str]) -> list[str]:
    """As with squeue, `-S -attempt` is an option and its value; argparse would take that value for options."""
    prepared: list[str] = []
    words = iter(given)
    for word in words:
        value = next(words, None) if word in ("-S", "--sort") else None
        prepared.append(word if value is None else f"--sort={value}")
    return prepared


def _read(reader: Callable[[str], T]) -> Callable[[str], T]:
    """argparse shows the text of no other error."""

    def read(text: str) -> T:
        try:
            return reader(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text) or float(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return float(text)


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or the stories of named jobs; with --iterate again and again."""
    if arguments.json and (arguments.format is not BY_DEFAULT or arguments.noheader):
        raise UsageError("--json knows no --format and no --noheader", "It holds everything; choose from it with jq")
    settings = config.load()
    slurm = CommandLine.of(settings).impatient()

    def show() -> None:
        _show(status_jobs.find(slurm, settings, arguments), arguments)

    if arguments.iterate is None:
        show()
    else:
        _again_and_again(show, arguments)
    return 0


def _again_and_again(show: Callable[[], None], arguments: argparse.Namespace) -> None:
    """Until Ctrl-C, which is how this ends. A controller that is restarted meanwhile ends it not."""
    try:
        while True:
            if not (arguments.json or arguments.parsable):
                print(time.strftime("%a %b %d %H:%M:%S %Y"))
            try:
                show()
            except UsageError:
                raise
            except SlurmFtError as error:
                print(f"slurm-ft: {error}", file=sys.stderr)
            if not (arguments.json or arguments.parsable):
                print()
            sys.stdout.flush()
            time.sleep(arguments.iterate)
    except KeyboardInterrupt:
        return


def _show(found: Found, arguments: argparse.Namespace) -> None:
    now = time.time()
    views = arguments.sort.sorted(found.views, now)
    for line in found.notes:
        print(f"slurm-ft: {line}", file=sys.stderr)
    if arguments.json:  # on one line: with an indent Python's encoder takes several times as long
        print_text(json.dumps(as_json.document(views, now, found.held)), sys.stdout)
    elif arguments.parsable:
        lines = render.delimited(views, now, arguments.format, header=not arguments.noheader)
        print_text("\n".join(lines), sys.stdout)
    elif arguments.named:
        _tell(views, now, found, arguments)
    else:
        if found.held:
            print(f"{found.held}: no job fails over until an admin runs `slurm-ft unpause`", file=sys.stderr)
        _print_table(views, now, arguments)


def _print_table(views: Sequence[JobView], now: float, arguments: argparse.Namespace) -> None:
    fitted = render.table(views, now, arguments.format, screen_of(sys.stdout), header=not arguments.noheader)
    print_table(fitted, sys.stdout)


def _tell(views: Sequence[JobView], now: float, found: Found, arguments: argparse.Namespace) -> None:
    """Each job's story; of an array the table and the stories of those tasks that have one."""
    jobs = story.whole_jobs(views)
    told = jobs
    if len(jobs) > len(status_jobs.named_jobs(arguments.named)):
        _print_table(views, now, arguments)
        told = [view for view in jobs if story.worth_telling(view)]
    pages = [story.story(view, now, found.held, screen_of(sys.stdout)) for view in told[:STORIES]]
    pages += [f"{len(told) - STORIES} more have a story: name them one by one"] if len(told) > STORIES else []
    pages += found.forgotten
    if told is not jobs and pages:
        print()
    print_text("\n\n".join(pages), sys.stdout)

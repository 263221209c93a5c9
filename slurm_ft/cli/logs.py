"""`slurm-ft logs JOB`: the job's own output, from all of its attempts; `-f` follows it across a requeue.

Root reads it with the rights of the job's user, and of nobody else. Only regular files are read.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from slurm_ft import config
from slurm_ft.as_user import User, become
from slurm_ft.checkpoints import printable
from slurm_ft.cli.status_jobs import named_jobs
from slurm_ft.errors import SlurmCommandError, SlurmFtError, UsageError
from slurm_ft.logs.files import LogFile, log_files
from slurm_ft.logs.follow import FINAL, Reader, follow
from slurm_ft.logs.screen import Screen, listing
from slurm_ft.logs.survey import Survey, chosen, last_lines, present, survey
from slurm_ft.logs.tail import Tail
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord, Streams

EPILOG = """\
examples:
  slurm-ft logs 12                    all attempts, as they stand in the file
  slurm-ft logs 12 --list             which attempts there are
  slurm-ft logs 12 --attempt 2        one of them; `last` is the newest
  slurm-ft logs -f 12 -n 20           the last lines, and what comes, until the job has ended for good
  slurm-ft logs --file train.log      a log of a job that Slurm has forgotten
Exit code: 0; 1 when the job is unknown, or its log is not there or cannot be read; 2 for what makes no sense."""
LAST = "last"
TASKS_NAMED = 8


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, EPILOG
    parser.add_argument("job", nargs="?", default="", metavar="JOB", help="a job id, or ARRAYJOBID_TASKID")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is added, across restarts")
    parser.add_argument("--attempt", default="", metavar="K", help=f"only this attempt (1 is the first), or `{LAST}`")
    parser.add_argument("-n", "--lines", type=_count, metavar="N", help="only the last N lines")
    parser.add_argument("--list", action="store_true", help="name the attempts and where they are, show no text")
    parser.add_argument("--file", default="", metavar="FILE", help="this file, instead of what Slurm names")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Show the log. Raises SlurmFtError."""
    if bool(arguments.job) == bool(arguments.file) or len(named_jobs([arguments.job])) > 1:
        raise UsageError("one log is shown at a time", "Name a job, or a file with --file")
    if arguments.follow and (arguments.list or arguments.file or arguments.attempt not in ("", LAST)):
        raise UsageError("--follow goes with a job and its newest attempt", "Leave --list, --file or --attempt out")
    if arguments.file:
        found = survey([LogFile(arguments.file, 0)])
        if not found.seen:
            raise SlurmFtError(f"there is no file {arguments.file}", "Name one that is there")
        _show(found, arguments, Screen(), arguments.file)
        return 0
    slurm = CommandLine.of(config.load()).impatient()
    job, streams = _found(slurm, arguments.job)
    foreign = os.geteuid() != streams.uid
    _take_rights(job, streams)
    files = log_files(job, streams)
    if not files:
        raise SlurmFtError(f"job {job.address} throws its output away", "Submit it with --output=FILE")
    found = survey(files, str(job.raw_id))
    screen = Screen(foreign=foreign, several=len(found.seen) > 1)
    if found.seen:
        _show(found, arguments, screen, f"job {job.address}")
    elif not arguments.follow or job.state in FINAL:
        raise _not_there(job, files)
    return _follow(slurm, job, streams, found, screen) if arguments.follow else 0


def _found(slurm: CommandLine, wanted: str) -> tuple[JobRecord, Streams]:
    """The one batch job of that name. Raises SlurmFtError."""
    try:
        jobs = slurm.jobs((f"--jobs={wanted}",))
        streams = {each.raw_id: each for each in slurm.streams(wanted)} if jobs else {}
    except SlurmCommandError as error:
        if "nvalid job id" not in error.output:
            raise
        jobs, streams = [], {}
    jobs = [job for job in jobs if job.het_leader in ("", str(job.raw_id)) and job.raw_id in streams]
    if not jobs:
        fix = "It forgets one some minutes after its end (MinJobAge): name the file, slurm-ft logs --file FILE"
        raise SlurmFtError(f"Slurm knows no job {wanted}", fix)
    if len(jobs) > 1:
        jobs.sort(key=lambda job: (len(job.address), job.address))
        names = ", ".join(job.address for job in jobs[:TASKS_NAMED]) + (", …" if len(jobs) > TASKS_NAMED else "")
        raise SlurmFtError(
            f"job {wanted} is an array of {len(jobs)} tasks, each with its own log", f"Name one: {names}"
        )
    job = jobs[0]
    if not job.batch:
        raise SlurmFtError(f"job {job.address} is no batch job", "Its output goes to the terminal that started it")
    return job, streams[job.raw_id]


def _take_rights(job: JobRecord, streams: Streams) -> None:
    """Root gives its rights up for the user's: the path is the user's choice. Raises SlurmFtError."""
    if os.geteuid() != 0 or streams.uid == 0:
        return
    try:
        become(User(streams.uid, name=job.user))
    except OSError as error:
        raise SlurmFtError(f"the log of {job.user} cannot be read as that user: {error.strerror}") from error


def _show(found: Survey, arguments: argparse.Namespace, screen: Screen, whose: str) -> None:
    chapters = chosen(found, arguments.attempt)
    if arguments.list:
        print(listing(chapters))
        return
    try:
        screen.chapters(chapters if arguments.lines is None else last_lines(chapters, arguments.lines))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise SlurmFtError(f"the log of {whose} cannot be read to its end: {error}") from error


def _not_there(job: JobRecord, files: Sequence[LogFile]) -> SlurmFtError:
    paths = " or ".join(printable(file.path) for file in files)
    if job.state == "PENDING" and not job.restarts:
        return SlurmFtError(f"job {job.address} has not started: {job.reason}", f"`-f` waits for {paths}")
    where = f" The job ran on {job.nodes}" if job.nodes else ""
    return SlurmFtError(
        f"the log of job {job.address} is not on this machine: {paths}", f"Is its disk mounted here?{where}"
    )


def _follow(slurm: CommandLine, job: JobRecord, streams: Streams, found: Survey, screen: Screen) -> int:
    def files(now: JobRecord) -> Sequence[LogFile]:
        there = present(log_files(now, streams))
        screen.several = len(there) > 1
        return there

    tails = {path: Tail(path, offset) for path, offset in found.seen.items()}
    reader = Reader(look=lambda: slurm.job(job.address), files=files, write=screen.write, say=_once(_say))
    last = follow(reader, job, tails)
    _say(f"job {job.address} has ended: {last.state}" if last else f"job {job.address}: Slurm has forgotten it")
    return 0


def _once(say: Callable[[str], None]) -> Callable[[str], None]:
    """The same is not said twice in a row: Slurm may be silent for an hour."""
    last = ""

    def guarded(text: str) -> None:
        nonlocal last
        if text != last:
            say(text)
        last = text

    return guarded


def _say(text: str) -> None:
    print(f"slurm-ft: {text}", file=sys.stderr, flush=True)

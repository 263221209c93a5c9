"""Where `slurm-ft status` has its jobs from: squeue, and sacct or the journal for those that Slurm has forgotten."""

from __future__ import annotations

import argparse
import getpass
import pwd
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurm_ft.cli import journal_access
from slurm_ft.config import Config
from slurm_ft.errors import SlurmCommandError, SlurmFtError, UsageError
from slurm_ft.failover import brake, comment_tag, ledger
from slurm_ft.failover.comment_tag import Tag
from slurm_ft.slurm import accounting, nodelist
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord, NodeRecord
from slurm_ft.status.view import JobView, views

PASSED_ON = ("--user", "--partition", "--nodelist", "--name")
UNKNOWN_JOB = "nvalid job id"
_JOB = re.compile(r"\d{1,10}(?:_(?:\d{1,10}|\[[0-9,-]{1,200}\])|\+\d{1,5})?")
_TASKS = re.compile(r",(?![^\[]*\])")  # a comma outside of brackets
NO_CONFIGURATION = "ould not establish a configuration source"
REFUSED = ("nvalid ", "nrecognized ", "nknown ")  # how squeue's and sacct's complaints about an option begin


@dataclass(frozen=True, slots=True)
class Found:
    """The jobs, and what there is to say besides. `forgotten` are stories that only the journal tells."""

    views: Sequence[JobView]
    held: str = ""  # why failover is held back at present
    notes: Sequence[str] = ()
    forgotten: Sequence[str] = ()


def find(slurm: CommandLine, settings: Config, arguments: argparse.Namespace) -> Found:
    """One request for the jobs and one for the nodes; one more of sacct for what slurmctld does not know any more.

    Raises UsageError for a filter that Slurm refuses, SlurmFtError for a named job that nobody knows.
    """
    named = named_jobs([*arguments.named, vars(arguments)["--jobs"] or ""])
    notes = _unknown_users(vars(arguments)["--user"] or "")
    filters = _filters(arguments)
    known = _known(slurm, filters, named)
    jobs, nodes = known or [], slurm.nodes()
    chosen = set() if arguments.states.ours else {job.raw_id for job in jobs}  # squeue's own filter let them through
    # A job that another filter has left out is not unknown.
    sought = named if known is None or not filters else []
    missing = [name for name in sought if not any(_is(job, name) for job in jobs)]
    jobs += _finished(slurm, arguments, jobs, missing, notes)
    missing = [name for name in missing if not any(_is(job, name) for job in jobs)]
    told = _from_journal(settings, missing, nodes)
    if lost := [name for name in missing if name not in told]:
        _not_found(lost, notes, fatal=not jobs and not told)
    held = brake.in_force(nodes)
    shown = [view for view in views(jobs, nodes, settings) if view.job.raw_id in chosen or arguments.states.admit(view)]
    return Found(shown, str(held) if held else "", notes, list(told.values()))


def named_jobs(texts: Sequence[str]) -> list[str]:
    """`12,13_[1-2]` as `12`, `13_1`, `13_2`: squeue takes a range for its first task. Raises UsageError."""
    names = [name for text in texts for name in _TASKS.split(text) if name]
    if odd := [name for name in names if not _JOB.fullmatch(name)]:
        raise UsageError(f"{odd[0]!r} names no job", "Jobs are named 12, 13_4, 13_[1-3] or 20+1")
    try:
        return [one for name in names for one in (nodelist.expand(name) if "[" in name else (name,))]
    except SlurmFtError as error:
        raise UsageError(f"no range of tasks: {error.what}", "Write 13_[1-3,7]") from error


def _unknown_users(text: str) -> list[str]:
    """For these squeue shows no jobs and ends well, so that a slip of the pen looks like an idle user."""
    return [f"no user is called {name!r} on this machine" for name in text.split(",") if not _is_user(name.strip())]


def _is_user(name: str) -> bool:
    if not name or name.isdecimal():  # squeue takes a number for what it is
        return True
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _not_found(names: Sequence[str], notes: list[str], *, fatal: bool) -> None:
    text = f"Slurm knows no job {', '.join(names)}"
    if not fatal:
        notes.append(text)
        return
    raise SlurmFtError("; ".join((text, *notes)), "It forgets one some minutes after its end (MinJobAge)")


def _filters(arguments: argparse.Namespace) -> list[str]:
    """squeue's options, but for the jobs that are named."""
    values = vars(arguments)
    filters = [f"{name}={values[name]}" for name in PASSED_ON if values[name]]
    filters += [f"--states={arguments.states.for_squeue}"] if arguments.states.for_squeue else []
    return [*filters, "--me"] if arguments.me else filters


def _known(slurm: CommandLine, filters: Sequence[str], named: Sequence[str]) -> list[JobRecord] | None:
    """squeue answers for all jobs that it knows, and complains only when it knows none of those named: None."""
    try:
        return slurm.jobs([*filters, *([f"--jobs={','.join(named)}"] if named else [])])
    except SlurmCommandError as error:
        if named and UNKNOWN_JOB in error.output:
            return None
        raise _usage(error) from error


def _usage(error: SlurmCommandError) -> SlurmFtError:
    """What Slurm says against an option; what it says against the machine stays an error of the machine."""
    if NO_CONFIGURATION in error.output:  # "Unknown host" of the DNS stands before it
        fix = "Set SLURM_CONF, or slurm_conf in slurm_ft.yaml"
        return SlurmFtError("Slurm's commands find no slurm.conf on this machine", fix)
    if not any(word in error.output for word in REFUSED):
        return error
    return UsageError(error.output.splitlines()[0], "Slurm itself says so; see the filters in `slurm-ft status --help`")


def _finished(
    slurm: CommandLine,
    arguments: argparse.Namespace,
    known: Sequence[JobRecord],
    missing: Sequence[str],
    notes: list[str],
) -> list[JobRecord]:
    """From sacct, where it is asked for or where a named job is missing. That it cannot say is a note, no failure."""
    if not missing and not arguments.since:
        return []
    values = vars(arguments)
    user = getpass.getuser() if arguments.me else values["--user"]
    filters = [f"{name}={values[name]}" for name in PASSED_ON[1:] if values[name]]
    filters.append(f"--user={user}" if user else "--allusers")
    filters += [f"--jobs={','.join(missing)}"] if missing else []
    filters += [f"--starttime={arguments.since}"] if arguments.since else []
    try:
        found = accounting.finished(slurm, filters)
    except SlurmCommandError as error:
        if not error.busy and arguments.since and any(word in error.output for word in REFUSED):
            raise _usage(error) from error
        notes.append(f"finished jobs: {error}")
        return []
    if found is None:
        notes.append("accounting is off, so there is no sacct to ask for jobs that have long ended")
        return []
    there = {job.raw_id for job in known}
    return [_as_it_ended(job) for job in found if job.raw_id not in there and job.ended is not None]


def _as_it_ended(job: JobRecord) -> JobRecord:
    """sacct 22.05 does not know the restart count: it is one more than that of the last attempt in the ledger. It keeps
    Comments only where it is told to; a job with a ledger has asked for failover."""
    history = ledger.read(job.admin_comment)
    if history is None:
        return job
    last = max((attempt.number for attempt in history.attempts), default=-1)
    return replace(job, restarts=last + 1, comment=job.comment or comment_tag.write("", Tag(history.count)) or "")


def _from_journal(settings: Config, missing: Sequence[str], nodes: Sequence[NodeRecord]) -> dict[str, str]:
    """What root or SlurmUser find in the controller's journal about jobs that nobody else knows: name -> story."""
    if not missing:
        return {}
    from slurm_ft.status.explain import Sources, explain  # noqa: PLC0415  what it imports, no list of jobs needs

    unseen: list[str] = []
    entries = journal_access.read(settings, unseen)
    stories: dict[str, str] = {}
    for name in missing:
        ids = {one.key.raw_id for one in entries if name in (one.key.address, str(one.key.raw_id))}
        every = [explain(Sources(raw_id, None, nodes, entries, unseen=tuple(unseen))) for raw_id in sorted(ids)]
        if every:
            stories[name] = "\n\n".join(every)
    return stories


def _is(job: JobRecord, name: str) -> bool:
    """Whether it is what was named: itself, a task of the array, or a component of the het job."""
    array = job.address.partition("_")[0]
    return name in (job.address, str(job.raw_id), array, job.het_leader)

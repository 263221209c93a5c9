"""The status as text: one row a job, and the story of one job. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from slurm_ft.model import Attempt, Domain
from slurm_ft.slurm import nodelist
from slurm_ft.status.view import JobView

NOTHING = "-"
REASON_WIDTH = 40  # Slurm spells some reasons out: "Nodes required for job are DOWN, DRAINED or reserved for …"


def _attempt(view: JobView) -> str:
    failovers = view.failovers
    return f"{failovers.count + 1}/{failovers.limit + 1}" if failovers.opted_in else ""


def _last_step(view: JobView) -> str:
    """From where the last attempt resumed, by the job's own word."""
    return "" if view.resume is None or view.resume.step is None else str(view.resume.step)


def _waits_for(view: JobView) -> str:
    """Slurm's own reason; a job that nothing but an admin can help does not merely wait."""
    reason = view.job.reason[:REASON_WIDTH]
    return f"({'no node left: ' if view.blocked else ''}{reason})" if reason else ""


COLUMNS: Mapping[str, Callable[[JobView], str]] = {
    "JOBID": lambda view: view.job.address,
    "PARTITION": lambda view: view.job.partition,
    "NAME": lambda view: view.job.name[:24],
    "USER": lambda view: view.job.user,
    "STATE": lambda view: view.state.value,
    "ATTEMPT": _attempt,
    "LAST_STEP": _last_step,
    "CAUSE": lambda view: view.cause,
    "EXCLUDED": lambda view: nodelist.fold(view.failovers.excluded),
    "NODELIST(REASON)": lambda view: view.job.nodes or _waits_for(view),
}


def table(views: Sequence[JobView], *, header: bool = True) -> str:
    """Aligned columns, two blanks apart, no trailing blanks; an empty cell is a dash so that columns can be counted."""
    rows = [[_printable(cell(view)) or NOTHING for cell in COLUMNS.values()] for view in views]
    if header:
        rows.insert(0, list(COLUMNS))
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))] if rows else []
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def story(view: JobView) -> str:
    """One job's attempts, from its ledger and its present state."""
    job, failovers = view.job, view.failovers
    spent = (
        f"{failovers.count} of {failovers.limit} failovers spent" if failovers.opted_in else "failover: not asked for"
    )
    lines = [f"job {job.address} {job.name} of {job.user}: {view.state.value}; {spent}"]
    lines += [line for attempt in failovers.history.attempts for line in _past(attempt)]
    lines.append(_present(view))
    lines += [f"    {view.blocked}"] if view.blocked else []
    lines += [f"    {fault.cause} on {fault.node}: {fault.text}" for fault in failovers.faults]
    return "\n".join(_printable(line) for line in lines)


def _past(attempt: Attempt) -> list[str]:
    began = _clock(attempt.started) if attempt.started else "?"
    blame = f", excluded {nodelist.fold(attempt.bad_nodes)}" if attempt.bad_nodes else ""
    kind = "failover" if attempt.counted else "not counted"
    end = f"{attempt.domain.value} {attempt.cause}" if attempt.domain is not Domain.UNKNOWN else attempt.cause
    when = f"{began} - {_clock(attempt.ended)}"
    line = f"  restart {attempt.number}  {when}  on {attempt.nodes or '?'}: {end}{blame} ({kind})"
    return [line, f"    {attempt.text}"] if attempt.text else [line]


def _present(view: JobView) -> str:
    job = view.job
    if job.state == "PENDING":  # its start and its end are what Slurm expects
        return f"  restart {job.restarts}  not started  waiting ({job.reason}): {view.state.value}"
    began = _clock(job.started) if job.started else "?"
    end = _clock(job.ended) if job.ended and job.state != "RUNNING" else ""
    where = f"on {job.nodes}" if job.nodes else f"waiting ({job.reason})"
    told = job.ended is not None and job.reason not in (
        "",
        "NonZeroExitCode",
    )  # such as JobLaunchFailure: no log to read
    why = f" (Slurm's reason: {job.reason})" if told and job.nodes else ""
    return f"  restart {job.restarts}  {began} - {end or 'now'}  {where}: {view.state.value}{why}{_resumed(view)}"


def _resumed(view: JobView) -> str:
    """What the job says of the present attempt's start; nothing if it said it of an earlier one."""
    mark = view.resume
    if mark is None or mark.attempt != view.job.restarts:
        return ""
    start = "from scratch" if mark.step is None else f"from step {mark.step}"
    stalled = f", as the {mark.without_progress} attempt(s) before it" if mark.without_progress else ""
    return f"; started {start}{stalled}" + (f"; ALERT {mark.alert}" if mark.alert else "")


def _clock(unix: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(unix))


def _printable(text: str) -> str:
    """A job's name and its evidence come from users: no control character reaches the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)

"""One job's story on one page: its attempts in time, what each cost, and what happens next. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from slurm_ft.model import Domain, JobState
from slurm_ft.slurm import nodelist
from slurm_ft.status import outlook, table, timeline
from slurm_ft.status.fields import COLOURS, RED, age, clock, duration
from slurm_ft.status.table import PAPER, Screen
from slurm_ft.status.timeline import FROM_SCRATCH, UNBEGUN, Lap
from slurm_ft.status.view import JobView

NO_NEWS = (JobState.RUNNING, JobState.PENDING, JobState.COMPLETED, JobState.CANCELLED)
EXPECTED = ("", "NonZeroExitCode")  # reasons that say no more than the exit code does
LEAST_ROOM = 20  # columns; in a narrower terminal lines break where they must


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the page; `indent` in blanks, `style` an ANSI code."""

    text: str
    indent: int = 0
    style: str = ""


def story(view: JobView, now: float, held: str = "", screen: Screen = PAPER) -> str:
    """The page as text, wrapped to the screen. `held`: why failover is held back at present."""
    written = (line for one in _lines(view, now, held) for line in _wrapped(one, screen.room))
    return "\n".join(" " * one.indent + screen.paint(one.text, one.style) for one in written)


def whole_jobs(views: Sequence[JobView]) -> list[JobView]:
    """Each het job once, as its leader with all nodes: it fails over as a whole. Other jobs and tasks as they are.

    Without its leader a component stands for itself.
    """
    parts: dict[str, list[JobView]] = {}
    for view in views:
        parts.setdefault(view.job.het_leader or view.job.address, []).append(view)
    return [_whole(group) for group in parts.values()]


def _whole(group: Sequence[JobView]) -> JobView:
    leader = next((view for view in group if view.job.het_leader == str(view.job.raw_id)), group[0])
    if len(group) == 1:
        return leader
    job = leader.job
    nodes = nodelist.merge(*(view.job.nodes for view in group))
    count = sum(view.job.node_count for view in group)
    return replace(leader, job=replace(job, address=job.het_leader, nodes=nodes, node_count=count))


def worth_telling(view: JobView) -> bool:
    """Whether there is more to tell than its row: of an array's thousand tasks only these get a story."""
    return bool(view.failovers.history.attempts or view.failovers.faults) or view.state not in NO_NEWS


def _lines(view: JobView, now: float, held: str) -> Iterator[Line]:
    job, failovers = view.job, view.failovers
    spent = (
        f"{failovers.count} of {failovers.limit} failovers spent" if failovers.opted_in else "failover: not asked for"
    )
    excluded = f"; excluded {nodelist.fold(failovers.excluded)}" if failovers.excluded else ""
    title = f"job {job.address} {job.name} of {job.user}: {view.state.value}; {spent}{excluded}"
    yield Line(title, style=COLOURS.get(view.state, ""))
    told = timeline.laps(view, now)
    for lap in told:
        yield from _of(lap, view, now)
    yield from _totals(told)
    yield Line(f"next: {outlook.next_of(view, held)}")
    yield Line(f"look closer: {outlook.look_closer(view)}")


def _of(lap: Lap, view: JobView, now: float) -> Iterator[Line]:
    attempt = f"attempt {lap.number}/{view.failovers.limit + 1}, " if view.failovers.opted_in else ""
    yield Line(f"{attempt}restart {lap.restart}: {_when(lap, view, now)}", 2)
    if start := _start(lap, view, now):
        yield Line(start, 4)
    end = f"{_verdict(lap)}{_consequence(lap)}" if not lap.present else _present_end(lap, view)
    if end:
        yield Line(end, 4, RED if lap.domain is Domain.HARDWARE else "")
    for text in lap.evidence:
        yield Line(text, 6)
    if cost := _cost(lap):
        yield Line(cost, 4)


def _when(lap: Lap, view: JobView, now: float) -> str:
    if lap.present and view.job.state in UNBEGUN:
        return f"waiting ({view.job.reason})" if view.job.reason else "waiting"
    where = f"on {lap.nodes}" if lap.nodes else "on ?"
    if lap.started is None:
        return f"{where}, ? - {clock(lap.ended) or 'now'}"
    begin, end = clock(lap.started), clock(lap.ended) or "now"
    day = begin.partition("T")[0] + "T"
    return f"{where}, {begin} - {end.removeprefix(day)} ({duration((lap.ended or now) - lap.started)})"


def _start(lap: Lap, view: JobView, now: float) -> str:
    """From where the attempt says that it started."""
    if lap.step is None:
        return ""
    if lap.step == FROM_SCRATCH:
        start = "started from scratch"
    else:
        old = age((lap.started or now) - lap.saved) if lap.saved is not None else ""
        start = f"started from step {lap.step}" + (f", saved {old} before" if old else "")
    return start + (_troubles(view) if lap.present else "")


def _troubles(view: JobView) -> str:
    mark = view.resume
    if mark is None or mark.attempt != view.job.restarts:
        return ""
    stalled = f", as the {mark.without_progress} attempt(s) before it" if mark.without_progress else ""
    return stalled + (f"; ALERT {mark.alert}" if mark.alert else "")


def _verdict(lap: Lap) -> str:
    return f"{lap.domain.value} {lap.cause}" if lap.domain is not Domain.UNKNOWN else lap.cause


def _consequence(lap: Lap) -> str:
    blame = f", excluded {nodelist.fold(lap.bad_nodes)}" if lap.bad_nodes else ""
    return f"{blame} ({'failover' if lap.counted else 'not counted'})"


def _present_end(lap: Lap, view: JobView) -> str:
    """How it ended, unless the title says all: Slurm's reason may (JobLaunchFailure: there is no log to read)."""
    job = view.job
    told = lap.ended is not None and job.nodes and job.reason not in EXPECTED
    return "; ".join(part for part in (_verdict(lap), f"Slurm's reason: {job.reason}" if told else "") if part)


def _cost(lap: Lap) -> str:
    parts = []
    if lap.waited is not None:
        parts.append(f"{duration(lap.waited)} until the next start")
    if lap.work_lost is not None:
        parts.append(f"{duration(lap.work_lost)} of work since the checkpoint")
    return f"lost: {', '.join(parts)}" if parts else ""


def _totals(told: Sequence[Lap]) -> Iterator[Line]:
    waited = [lap.waited for lap in told if lap.waited is not None]
    work = [lap.work_lost for lap in told if lap.work_lost is not None]
    if len(waited) > 1:
        parts = [f"{duration(sum(waited))} between attempts"]
        parts += [f"{duration(sum(work))} of work"] if work else []
        yield Line(f"lost in all: {', '.join(parts)}")


def _wrapped(line: Line, room: int | None) -> Iterator[Line]:
    """On a terminal a long line goes on two blanks further in."""
    text = table.printable(line.text)
    if room is None or table.width(text) + line.indent <= room:
        yield replace(line, text=text)
        return
    space = max(room - line.indent, LEAST_ROOM)
    first, *rest = textwrap.wrap(text, space, subsequent_indent="  ", break_on_hyphens=False) or [""]
    yield replace(line, text=first)
    for more in rest:
        yield replace(line, text=more)

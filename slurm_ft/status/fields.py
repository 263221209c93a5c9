"""What `slurm-ft status` can show of a job: the one table behind `--format`, `--sort` and their documentation. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_ft.model import JobState
from slurm_ft.slurm import nodelist
from slurm_ft.status import timeline
from slurm_ft.status.view import JobView

ONE_MINUTE, ONE_HOUR, ONE_DAY = 60, 3600, 86400
GREEN, YELLOW, RED, DIM = "32", "33", "31", "2"
COLOURS: Mapping[JobState, str] = {
    JobState.RUNNING: GREEN,
    JobState.FAILOVER_IN_PROGRESS: YELLOW,
    JobState.INTERNAL_ERROR: RED,
    JobState.MAX_RETRIES_EXCEEDED: RED,
    JobState.IMAGE_PULL_BACKOFF: RED,
    JobState.FAILED: RED,
    JobState.TIMEOUT: RED,
    JobState.COMPLETED: DIM,
    JobState.CANCELLED: DIM,
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `text` is given the view and the present moment in unix seconds; so is `order`, which sorts.

    `least` and `keep` say how it fits a narrow terminal, see table.Column.
    """

    name: str
    header: str
    meaning: str
    text: Callable[[JobView, float], str]
    order: Callable[[JobView, float], Any] | None = None
    least: int = 0
    keep: int = 0
    style: Callable[[JobView], str] | None = None

    def key(self, view: JobView, now: float) -> Any:
        """What sorting compares."""
        return self.order(view, now) if self.order else self.text(view, now)


def clock(unix: float | None) -> str:
    """Local time, as Slurm writes it."""
    return "" if unix is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(unix))


def duration(seconds: float | None) -> str:
    """As squeue: `1:05`, `1:02:03`, `2-00:00:00`."""
    if seconds is None:
        return ""
    whole = max(int(seconds), 0)
    days, rest = divmod(whole, ONE_DAY)
    hours, rest = divmod(rest, ONE_HOUR)
    minutes, rest = divmod(rest, ONE_MINUTE)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def age(seconds: float | None) -> str:
    """For people: `40s`, `12m`, `5h`, `3d`."""
    if seconds is None:
        return ""
    whole = max(int(seconds), 0)
    for size, unit in ((ONE_DAY, "d"), (ONE_HOUR, "h"), (ONE_MINUTE, "m")):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def natural(text: str) -> list[Any]:
    """A key that puts `n2` before `n10`."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", text)]


def _attempt(view: JobView) -> str:
    failovers = view.failovers
    return f"{failovers.count + 1}/{failovers.limit + 1}" if failovers.opted_in else ""


def _last_step(view: JobView) -> str:
    return "" if view.resume is None or view.resume.step is None else str(view.resume.step)


def saved_ago(view: JobView, now: float) -> float | None:
    """Seconds since the checkpoint was written that the job's last attempt started from, by the job's own word."""
    saved = view.resume.saved if view.resume else None
    return None if saved is None or saved > now + ONE_DAY else max(now - saved, 0.0)


def _waits_for(view: JobView) -> str:
    """Slurm's own reason; a job that nothing but an admin can help does not merely wait."""
    reason = view.job.reason
    return f"({'no node left: ' if view.blocked else ''}{reason})" if reason else ""


def _number(value: float | None) -> tuple[bool, float]:
    """Those without a value come last."""
    return value is None, value or 0.0


ALL: Mapping[str, Field] = {
    field.name: field
    for field in (
        Field(
            "jobid", "JOBID", "as Slurm names it: `12`, `13_4` (task of an array), `20+1` (component of a het job)",
            lambda view, _: view.job.address, lambda view, _: natural(view.job.address), keep=100,
        ),
        Field("rawid", "RAWID", "the number that every task and component has of its own",
              lambda view, _: str(view.job.raw_id), lambda view, _: view.job.raw_id),
        Field("partition", "PARTITION", "", lambda view, _: view.job.partition, least=6, keep=40),
        Field("name", "NAME", "", lambda view, _: view.job.name, least=8, keep=60),
        Field("user", "USER", "", lambda view, _: view.job.user, least=6, keep=45),
        Field("account", "ACCOUNT", "", lambda view, _: view.job.account, least=6),
        Field("qos", "QOS", "", lambda view, _: view.job.qos, least=6),
        Field(
            "state", "STATE", "the names in the README's table", lambda view, _: view.state.value,
            least=20, keep=95, style=lambda view: COLOURS.get(view.state, ""),
        ),
        Field("slurmstate", "SLURM_STATE", "what Slurm itself calls it", lambda view, _: view.job.state),
        Field("time", "TIME", "how long the present attempt has run, or the last one ran",
              lambda view, now: duration(timeline.elapsed(view.job, now) or 0.0),
              lambda view, now: timeline.elapsed(view.job, now) or 0.0, keep=30),
        Field("timelimit", "TIME_LIMIT", "", lambda view, _: duration(view.job.time_limit) or "UNLIMITED",
              lambda view, _: _number(view.job.time_limit)),
        Field("nodes", "NODES", "how many", lambda view, _: str(view.job.node_count),
              lambda view, _: view.job.node_count, keep=20),
        Field("attempt", "ATTEMPT", "`2/4` is the second of at most four; empty: failover was not asked for",
              lambda view, _: _attempt(view), lambda view, _: view.failovers.count, keep=90),
        Field("restarts", "RESTARTS", "Slurm's own count, preemptions and all", lambda view, _: str(view.job.restarts),
              lambda view, _: view.job.restarts),
        Field("cause", "CAUSE", "of the last failure", lambda view, _: view.cause, least=8, keep=80),
        Field("excluded", "EXCLUDED", "nodes that failovers excluded, the user's own `--exclude` not among them",
              lambda view, _: nodelist.fold(view.failovers.excluded),
              lambda view, _: natural(",".join(view.failovers.excluded)), least=8, keep=50),
        Field("laststep", "LAST_STEP", "the step from which the last attempt started, by the job's own word",
              lambda view, _: _last_step(view),
              lambda view, _: _number(view.resume.step if view.resume else None), keep=55),
        Field("checkpoint", "CHECKPOINT", "how long ago that step's checkpoint was written: a newer one may exist",
              lambda view, now: age(saved_ago(view, now)), lambda view, now: _number(saved_ago(view, now)), keep=35),
        Field("nodelist", "NODELIST", "", lambda view, _: view.job.nodes, lambda view, _: natural(view.job.nodes),
              least=8),
        Field("reason", "REASON", "why it waits or how it ended, in Slurm's words", lambda view, _: view.job.reason,
              least=10),
        Field("reasonlist", "NODELIST(REASON)", "where it runs, or why it waits",
              lambda view, _: view.job.nodes or _waits_for(view),
              lambda view, _: natural(view.job.nodes or view.job.reason), least=10, keep=85),
        Field("timelost", "TIME_LOST", "between the ends of its attempts and the starts of the next, so far",
              lambda view, now: duration(timeline.time_lost(view, now)),
              lambda view, now: timeline.time_lost(view, now) or 0.0),
        Field("submitted", "SUBMITTED", "Slurm renews it at each requeue", lambda view, _: clock(view.job.submitted),
              lambda view, _: _number(view.job.submitted)),
        Field("started", "STARTED", "", lambda view, _: clock(timeline.began(view.job)),
              lambda view, _: _number(timeline.began(view.job))),
        Field("ended", "ENDED", "", lambda view, _: clock(timeline.ended(view.job)),
              lambda view, _: _number(timeline.ended(view.job))),
        Field("exit", "EXIT", "code:signal of the batch script",
              lambda view, _: f"{view.job.exit_code}:{view.job.exit_signal}"),
        Field("reservation", "RESERVATION", "", lambda view, _: view.job.reservation),
        Field("evidence", "EVIDENCE", "the line that decided about the last failure",
              lambda view, _: timeline.last_evidence(view), least=20),
        Field("stdout", "STDOUT", "the job's output, as Slurm names it", lambda view, _: view.job.stdout, least=20),
        Field("comment", "COMMENT", "the job's whole Comment", lambda view, _: view.job.comment, least=20),
    )
}  # fmt: skip
DEFAULT = (
    "jobid", "partition", "name", "user", "state", "time", "nodes", "attempt", "cause", "excluded", "laststep",
    "checkpoint", "reasonlist",
)  # fmt: skip

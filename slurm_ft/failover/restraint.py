"""What holds failover back from a job although its hardware is at fault. Pure; the rules are in policy.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_ft.config import Config
from slurm_ft.failover import brake, resume_tag
from slurm_ft.model import Ledger, Restraints
from slurm_ft.slurm.protocol import JobRecord, NodeRecord


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a decision looks at besides the job. `now` is unix seconds."""

    nodes: Sequence[NodeRecord]  # all of the cluster's; none if no hardware is at fault anyway
    config: Config
    now: float


def restraints(job: JobRecord, attempt: int, history: Ledger, surroundings: Surroundings) -> Restraints:
    """For the end of this attempt of the job."""
    nodes, config = surroundings.nodes, surroundings.config
    held = brake.in_force(nodes) or brake.tripped(nodes, (), config, surroundings.now)
    return Restraints(
        brake=str(held) if held else "",
        fruitless=fruitless(history, step_of(job.comment, attempt)),
        progress_stop=config.progress_stop,
        rules_off=config.rules_off,
    )


def step_of(comment: str, attempt: int) -> int | None:
    """The checkpoint step that this attempt started from, -1 for a start from scratch; None if the job does not say.

    The job's user writes it, so it may be wrong; it concerns nobody else's job.
    """
    mark = _mark_of(comment, attempt)
    if mark is None:
        return None
    return -1 if mark.step is None else mark.step


def saved_of(comment: str, attempt: int) -> int | None:
    """When that checkpoint was written (unix seconds), if the job says it."""
    mark = _mark_of(comment, attempt)
    return mark.saved if mark else None


def _mark_of(comment: str, attempt: int) -> resume_tag.ResumeMark | None:
    mark = resume_tag.read(comment)
    return mark if mark and mark.attempt == attempt else None


def fruitless(history: Ledger, step: int | None) -> int:
    """How many failovers in a row brought no checkpoint newer than `step`, from which the last attempt started.

    An attempt that was preempted proves nothing, and one whose step is not known ends the row.
    """
    if step is None:
        return 0
    row = 0
    for attempt in reversed([attempt for attempt in history.attempts if attempt.counted]):
        if attempt.step is None or attempt.step < step:
            break
        row += 1
    return row

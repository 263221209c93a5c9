"""Which decisions people are told of, and what they are told. Pure: time is what the journal's entries say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurm_ft.alert import Alert, Kind
from slurm_ft.config import Config
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Action, Decision, Domain, JobKey, JobState

# rule of failover/policy.py -> what it means to people
RULES: Mapping[str, Kind] = {
    "limit_reached": Kind.LIMIT_REACHED,
    "held_back": Kind.BREAKER_OPEN,
    "no_progress": Kind.NO_PROGRESS,
    "all_nodes_blamed": Kind.UNKNOWN_VERDICT,
    "epilog_silent": Kind.UNKNOWN_VERDICT,
    "no_hardware_signal": Kind.INTERNAL_ERROR,
    "not_requeueable": Kind.OPERATION,
}
# the word of the job's own tag (failover/resume_tag.py) -> the kind, and what it means
MARKS: Mapping[str, tuple[Kind, str]] = {
    "same_step": (Kind.NO_PROGRESS, "no attempt has left a newer checkpoint"),
    "restarted_from_zero": (Kind.NOT_RESUMED, "training began at step 0 although a checkpoint was chosen"),
    "resumed_elsewhere": (Kind.NOT_RESUMED, "training did not go on from the checkpoint that was chosen"),
    "no_valid_checkpoint": (Kind.NO_VALID_CHECKPOINT, "there are checkpoints, and none of them is whole"),
    "checkpoints_lost": (Kind.NO_VALID_CHECKPOINT, "the checkpoints of its earlier attempts are gone"),
    "no_room": (Kind.OPERATION, "its output directory has no room for another checkpoint"),
    "checkpointing_disabled": (Kind.CHECKPOINTING_DISABLED, "saving failed too often and is off"),
}
RESTARTS = (Action.REQUEUE, Action.RECORD)


@dataclass(frozen=True, slots=True)
class Job:
    """What a decision's entry does not hold of its job."""

    name: str
    user: str
    nodes: str = ""
    checkpoint: str = ""  # the last one that is known


def about(entry: Entry, known: Sequence[Entry], job: Job, config: Config) -> Iterator[Alert]:
    """The alerts that a decision calls for. `known`: what the journal holds of this job, this entry or not."""
    decision = entry.decision
    if decision is None:
        return
    kind = RULES.get(decision.rule)
    if kind:
        yield _alert(kind, entry, decision, job, decision.reason)
    restarts = restarts_in_a_row(entry, known, config.alert_window)
    if restarts >= config.alert_restarts:
        what = f"{restarts} restarts within {config.alert_window / 60:g} minutes, the last for {decision.cause}"
        yield _alert(Kind.REPEATED_RESTARTS, entry, decision, job, what)


def about_mark(word: str, key: JobKey, job: Job, now: float) -> Alert | None:
    """What the job itself says in its Comment: its user's word, about nothing but this job."""
    if word not in MARKS:
        return None
    kind, meaning = MARKS[word]
    return Alert(
        kind=kind,
        what=f"job {key.address}: {meaning}",
        at=now,
        subject=f"job {key.raw_id} restart {key.attempt}",
        job=key.address,
        job_name=job.name,
        user=job.user,
        count=f"restart {key.attempt}",
        nodes=job.nodes,
        cause=word,
        checkpoint=job.checkpoint,
        following="the job goes on as it is",
        command=f"slurm-ft status {key.address}, and the job's own log",
    )


def restarts_in_a_row(entry: Entry, known: Sequence[Entry], window: float) -> int:
    """How many failovers this run of the job has had within the window, this one the last; 0 if it is none.

    A run ends with the job's success, since the next one gets another id; what is older than the window was followed
    by a quiet time.
    """
    if not _restart(entry):
        return 0
    of_run = {one.key.attempt for one in known if one.run == entry.run and _restart(one) and one.at > entry.at - window}
    return len(of_run | {entry.key.attempt})


def _restart(entry: Entry) -> bool:
    return entry.stage is Stage.DECIDED and entry.decision is not None and entry.decision.action in RESTARTS


def _alert(kind: Kind, entry: Entry, decision: Decision, job: Job, what: str) -> Alert:
    address = entry.key.address
    return Alert(
        kind=kind,
        what=f"job {address}: {what}",
        at=entry.at,
        subject=f"job {entry.key.raw_id} run {entry.run}",
        cluster=entry.cluster,
        job=address,
        job_name=job.name,
        user=job.user,
        count=f"{decision.count} of {decision.limit} failovers spent",
        nodes=entry.nodes,
        cause=decision.cause + (" (hardware)" if decision.domain is Domain.HARDWARE else ""),
        line=decision.text,
        checkpoint=job.checkpoint,
        following=_following(decision, acting=entry.mode != "observe"),
        command=f"slurm-ft explain {address}",
    )


def _following(decision: Decision, *, acting: bool) -> str:
    if not acting:
        return "nothing was changed (mode: observe)"
    if decision.action in RESTARTS:
        without = f" without {','.join(decision.exclude)}" if decision.exclude else ""
        return f"the job starts again{without}"
    if decision.action is Action.CANCEL:
        return "the job is cancelled"
    if decision.state is JobState.MAX_RETRIES_EXCEEDED:
        return "the job is not started again; mend its hardware or raise its limit, then `scontrol requeue` it"
    return "the job is not started again; `scontrol requeue` starts it by hand"

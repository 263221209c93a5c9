"""Why a job was failed over or not: for each attempt the evidence, the rule that fired, and what was done. Pure.

It shows what it was given, and says what it could not see: a user sees the ledger and the nodes' records, an admin on
the controller the journal besides, and one on a node that node's event file and judgements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from slurm_ft.failover import ledger, node_record, resume_tag
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Action, Attempt, Decision, Domain, Ledger, NodeVerdict
from slurm_ft.node.event_file import RecordedEvent
from slurm_ft.node.judgement_file import Judgement
from slurm_ft.slurm.protocol import JobRecord, NodeRecord
from slurm_ft.status.table import printable

OVERLAP = 86400.0  # seconds; see _of_this_job


@dataclass(frozen=True, slots=True)
class Sources:
    """All that could be read. `events` and `judged` are by node; `unseen` says what could not be read, and why."""

    raw_id: int
    job: JobRecord | None  # None: Slurm has forgotten it
    nodes: Sequence[NodeRecord] = ()
    journal: Sequence[Entry] = ()
    events: Mapping[str, Sequence[RecordedEvent]] | None = None
    judged: Mapping[str, Sequence[Judgement]] | None = None
    unseen: tuple[str, ...] = ()


def explain(sources: Sources) -> str:
    """The story as text; every line is printable, since evidence holds text of users."""
    history = _history(sources)
    lines = [_title(sources, history)]
    for number in _attempts(sources, history):
        lines += _attempt(sources, history, number)
    lines += [f"not seen: {what}" for what in sources.unseen]
    return "\n".join(printable(line) for line in lines)


def _history(sources: Sources) -> Ledger:
    return (ledger.read(sources.job.admin_comment) if sources.job else None) or Ledger(run_id="")


def _title(sources: Sources, history: Ledger) -> str:
    job = sources.job
    if job is None:
        return f"job {sources.raw_id}: Slurm has forgotten it; this is what the journal holds"
    spent = f"{history.count} failovers spent" + (f", excluded {','.join(history.excluded)}" * bool(history.excluded))
    return f"job {job.address} {job.name} of {job.user}: {job.state}, restarts {job.restarts}; {spent}"


def _attempts(sources: Sources, history: Ledger) -> list[int]:
    """Every attempt that any source knows of."""
    numbers = {attempt.number for attempt in history.attempts}
    numbers |= {entry.key.attempt for entry in _entries(sources)}
    numbers |= {verdict.attempt for verdict in _verdicts(sources)}
    prefix = f"{sources.raw_id}."
    judged = (one for every in (sources.judged or {}).values() for one in every if _of_this_job(sources, one.at))
    own = (one.attempt.removeprefix(prefix) for one in judged if one.attempt.startswith(prefix))
    numbers |= {int(number) for number in own if number.isdecimal()}
    return sorted(numbers | ({sources.job.restarts} if sources.job else set()))


def _attempt(sources: Sources, history: Ledger, number: int) -> list[str]:
    past = next((attempt for attempt in history.attempts if attempt.number == number), None)
    entries = [entry for entry in _entries(sources) if entry.key.attempt == number]
    judged = _judgements(sources, number)
    seen = [line for node, one in judged for line in _seen(node, one)]
    evidence = [*seen, *_from_nodes(sources, number), *_from_events(sources, number)]
    if past and past.text and not evidence:
        evidence = [f"ledger: {past.text}"]
    body = [
        *(f"resumed   {line}" for line in _from_comment(sources, number)),
        *(f"evidence  {line}" for line in evidence or ["none that can be seen from here"]),
        *(f"judged    {_verdict(node, one)}" for node, one in judged),
        *(f"{_word(entry):<9} {_clock(entry.at)} {_said(entry)}" for entry in entries),
    ]
    if past and not entries:
        body.append(f"decided   {_clock(past.ended)} {_outcome(past)} (ledger)")
    return [_heading(sources, past, number), *(f"  {line}" for line in body)]


def _heading(sources: Sources, past: Attempt | None, number: int) -> str:
    if past:
        began = _clock(past.started) if past.started else "?"
        return f"restart {number} on {past.nodes or '?'}, {began} - {_clock(past.ended)}"
    job = sources.job
    if job is None or job.restarts != number:
        return f"restart {number}"
    return f"restart {number} on {job.nodes or '-'}, {_clock(job.started) if job.started else '?'}, now {job.state}"


def _from_nodes(sources: Sources, number: int) -> list[str]:
    """What the nodes' Reasons and Comments hold."""
    return [
        f"{verdict.node} {_clock(verdict.at)} {verdict.domain.value} {verdict.cause}"
        f"{f' GPU {verdict.pci}' if verdict.pci else ''}: {verdict.text} (record on the node)"
        for verdict in _verdicts(sources)
        if verdict.attempt == number
    ]


def _from_comment(sources: Sources, number: int) -> list[str]:
    """Where the job itself says that it started. Only the last attempt's word is kept."""
    mark = resume_tag.read(sources.job.comment) if sources.job else None
    if mark is None or mark.attempt != number:
        return []
    start = "from scratch" if mark.step is None else f"from step {mark.step}"
    stalled = f"; {mark.without_progress} earlier attempt(s) in a row did too" if mark.without_progress else ""
    return [f"{start}{stalled}{f'; ALERT {mark.alert}' if mark.alert else ''} (the job's own word)"]


def _from_events(sources: Sources, number: int) -> list[str]:
    name = f"{sources.raw_id}.{number}"
    return [
        f"{node} {_clock(one.time)} {one.event.source} (event file, record {one.sequence})"
        for node, events in (sources.events or {}).items()
        for one in _once(events, lambda one: (one.boot_id, one.sequence, one.event))
        if name in one.attempts and _of_this_job(sources, one.time)
    ]


def _judgements(sources: Sources, number: int) -> list[tuple[str, Judgement]]:
    """What the nodes' epilogs judged of this attempt."""
    name = f"{sources.raw_id}.{number}"
    return [
        (node, one)
        for node, every in (sources.judged or {}).items()
        for one in _once(every, lambda one: replace(one, at=0.0))
        if one.attempt == name and _of_this_job(sources, one.at)
    ]


def _seen(node: str, judged: Judgement) -> Iterator[str]:
    """Each piece of evidence: where, from which sensor, when, the line itself."""
    for one in judged.seen:
        for at, text in one.lines:
            yield f"{node} {'undated' if at is None else _clock(at)} {text} ({one.sensor})"
        if one.detail:
            yield f"{node} {one.sensor}{'' if one.readable else ' could not look'}: {one.detail}"


def _verdict(node: str, judged: Judgement) -> str:
    action = judged.node_action.replace("_", " ")
    what = f"{judged.domain} {judged.cause}, rule {judged.rule}, node action {action}"
    return f"{node} {_clock(judged.at)} {what}: {judged.reason}"


def _word(entry: Entry) -> str:
    return "watcher" if entry.stage is Stage.WATCH else entry.stage.value


def _said(entry: Entry) -> str:
    """What a line of the journal tells a reader."""
    if entry.decision is None:
        return entry.detail
    where = f" on {entry.node}" if entry.node else ""
    mode = "" if entry.mode == "act" else f" (mode {entry.mode}: nothing was changed)"
    return f"{_action(entry, entry.decision)}{where}, rule {entry.decision.rule}: {entry.decision.reason}{mode}"


def _action(entry: Entry, decision: Decision) -> str:
    if entry.stage is not Stage.WATCH:
        return decision.action.value
    return "end the job, to be requeued" if decision.action is Action.REQUEUE else "leave the job running"


def _outcome(past: Attempt) -> str:
    what = "counted as a failover" if past.counted else "not counted"
    cause = past.cause if past.domain is Domain.UNKNOWN else f"{past.domain.value} {past.cause}"
    return f"{cause}: {what}" + (f", excluded {','.join(past.bad_nodes)}" if past.bad_nodes else "")


def _entries(sources: Sources) -> list[Entry]:
    """The journal's on this job: job ids are reused. A hook that was killed and ran again may have written twice."""
    own = (entry for entry in sources.journal if entry.key.raw_id == sources.raw_id)
    return _once((entry for entry in own if _of_this_job(sources, entry.at)), lambda entry: repr(replace(entry, at=0)))


T = TypeVar("T")


def _once(every: Iterable[T], meaning: Callable[[T], Hashable]) -> list[T]:
    """The first of those that mean the same."""
    first: dict[Hashable, T] = {}
    for one in every:
        first.setdefault(meaning(one), one)
    return list(first.values())


def _verdicts(sources: Sources) -> list[NodeVerdict]:
    reports = (node_record.left_on(node.name, node.reason, node.comment) for node in sources.nodes)
    found = [verdict for report in reports for verdict in report]
    ours = (verdict for verdict in found if verdict.raw_id == sources.raw_id and _of_this_job(sources, verdict.at))
    return sorted(ours, key=lambda verdict: verdict.at)


def _of_this_job(sources: Sources, at: float) -> bool:
    """Whether it can be: what is older than the job belongs to an earlier one with the same id.

    A requeue renews the submit time; then the first attempt's start counts, or if it is not known, a day's slack.
    """
    job, attempts = sources.job, _history(sources).attempts
    if job is None or job.submitted is None:
        return True
    if job.restarts == 0:
        return at >= job.submitted
    first = attempts[0].started if attempts else None
    return at >= (job.submitted - OVERLAP if first is None else first)


def _clock(unix: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(unix))

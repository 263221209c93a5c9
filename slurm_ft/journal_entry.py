"""One entry of the journal: what was decided about an attempt, and each step of carrying it out.

The journal is the write-ahead log: an entry that names an intent (`seen`, `decided`) is written before it is acted on,
one that names a change right after it. What is missing at the end is finished by the next hook or by
`slurm-ft reconcile`.

    seen -> decided -> requeued -> recorded -> released         a failover
            decided -> recorded -> released                     Slurm had requeued the job already
            decided -> recorded -> closed                       the job is cancelled: over the limit
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from slurm_ft.model import Action, Attempt, Decision, Domain, JobKey, JobState

SCHEMA_VERSION = 2


class Stage(str, Enum):
    """How far the matter has got."""

    SEEN = "seen"  # the attempt has ended, and is to be judged
    DECIDED = "decided"
    REQUEUED = "requeued"
    COUNTED = "counted"  # the job runs again already: Slurm takes its exclusions when it is next pending
    RECORDED = "recorded"  # excluded, counted, in the ledger
    RELEASED = "released"  # may start at once
    BLOCKED = "blocked"  # released, and Slurm has no node for it: `detail` says what is missing
    CLOSED = "closed"  # nothing is left to be done, and `detail` says why
    FAILED = "failed"  # Slurm refused a step: it is tried again
    WATCH = "watch"  # a decision of the watcher about an attempt that still ran


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal. `at` and `submitted` are unix seconds.

    Cluster, job, attempt and run id name the matter. Job ids are reused, so `submitted` says which job of that id it
    was: the submit time at the moment of the entry, which Slurm renews at the end of each requeue (measured on 22.05).
    """

    at: float
    stage: Stage
    key: JobKey
    cluster: str = ""
    run: str = ""
    submitted: float | None = None
    mode: str = ""
    node: str = ""  # where the watcher runs
    nodes: str = ""  # nodelist of the ended attempt
    started: float | None = None
    told: Mapping[str, str] = field(default_factory=dict)  # what Slurm told the hook (environment.TOLD)
    decision: Decision | None = None
    detail: str = ""

    @property
    def matter(self) -> tuple[str, int, int, str]:
        """What one decision and all that comes of it have in common."""
        return self.cluster, self.key.raw_id, self.key.attempt, self.run

    def attempt(self) -> Attempt:
        """The ledger's line for a decision. Raises ValueError if this entry is none."""
        if self.decision is None:
            raise ValueError(f"a {self.stage.value} entry holds no decision")
        decision = self.decision
        return Attempt(
            number=self.key.attempt,
            nodes=self.nodes,
            started=self.started,
            ended=self.at,
            domain=decision.domain,
            cause=decision.cause,
            bad_nodes=decision.exclude,
            counted=decision.action in (Action.REQUEUE, Action.RECORD),
            text=decision.text,
            step=decision.step,
            saved=decision.saved,
            drained=decision.drained,
        )


def to_json(entry: Entry) -> dict[str, Any]:
    """Flat, so that `jq` and grep read it; what is empty is left out."""
    optional = {
        "cluster": entry.cluster,
        "run": entry.run,
        "submitted": entry.submitted,
        "mode": entry.mode,
        "node": entry.node,
        "nodes": entry.nodes,
        "started": entry.started,
        "told": dict(entry.told),
        "detail": entry.detail,
    }
    return {
        "v": SCHEMA_VERSION,
        "at": entry.at,
        "what": entry.stage.value,
        "job": entry.key.address,
        "raw_id": entry.key.raw_id,
        "attempt": entry.key.attempt,
        **{name: value for name, value in optional.items() if value not in ("", None, {})},
        **(_decision_to_json(entry.decision) if entry.decision else {}),
    }


def from_json(value: object) -> Entry | None:
    """None for what is no entry of ours: torn lines, and stages that a newer version writes."""
    if not isinstance(value, dict):
        return None
    try:
        return _entry(value)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _entry(value: Mapping[str, Any]) -> Entry:
    return Entry(
        at=float(value["at"]),
        stage=Stage(value["what"]),
        key=JobKey(int(value["raw_id"]), str(value["job"]), int(value["attempt"])),
        cluster=str(value.get("cluster", "")),
        run=str(value.get("run", "")),
        submitted=_number(value.get("submitted")),
        mode=str(value.get("mode", "")),
        node=str(value.get("node", "")),
        nodes=str(value.get("nodes", "")),
        started=_number(value.get("started")),
        told={str(name): str(text) for name, text in value.get("told", {}).items()},
        decision=_decision(value) if "action" in value else None,
        detail=str(value.get("detail", "")),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _decision_to_json(decision: Decision) -> dict[str, Any]:
    return {
        "action": decision.action.value,
        "state": decision.state.value,
        "domain": decision.domain.value,
        "cause": decision.cause,
        "exclude": list(decision.exclude),
        "count": decision.count,
        "limit": decision.limit,
        "rule": decision.rule,
        "reason": decision.reason,
        "text": decision.text,
        **({} if decision.step is None else {"step": decision.step}),
        **({} if decision.saved is None else {"saved": decision.saved}),
        **({"drained": list(decision.drained)} if decision.drained else {}),
    }


def _decision(value: Mapping[str, Any]) -> Decision:
    return Decision(
        action=Action(value["action"]),
        state=JobState(value["state"]),
        domain=Domain(value["domain"]),
        cause=str(value["cause"]),
        count=int(value["count"]),
        limit=int(value["limit"]),
        rule=str(value["rule"]),
        reason=str(value["reason"]),
        exclude=tuple(str(node) for node in value["exclude"]),
        text=str(value["text"]),
        step=None if value.get("step") is None else int(value["step"]),
        saved=None if value.get("saved") is None else int(value["saved"]),
        drained=tuple(str(node) for node in value.get("drained", ())),
    )

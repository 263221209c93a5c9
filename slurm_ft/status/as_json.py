"""The status as JSON; docs/status.md describes it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slurm_ft.status import outlook, timeline
from slurm_ft.status.timeline import FROM_SCRATCH, Lap
from slurm_ft.status.view import JobView

SCHEMA = 1  # counts up when a key goes or changes its meaning; new keys may come at any time


def document(views: Sequence[JobView], now: float, held: str = "") -> dict[str, Any]:
    """All that is known of the jobs. `held`: why failover is held back at present."""
    return {"schema": SCHEMA, "time": now, "held": held or None, "jobs": [_job(view, now, held) for view in views]}


def _job(view: JobView, now: float, held: str) -> dict[str, Any]:
    job, failovers = view.job, view.failovers
    return {
        "job": _text(job.address),
        "raw_id": job.raw_id,
        "name": _text(job.name),
        "user": _text(job.user),
        "account": _text(job.account) or None,
        "partition": _text(job.partition),
        "qos": _text(job.qos) or None,
        "state": view.state.value,
        "slurm_state": job.state,
        "reason": _text(job.reason) or None,
        "nodes": _text(job.nodes) or None,
        "node_count": job.node_count,
        "time_limit": job.time_limit,
        "submitted": job.submitted,
        "started": timeline.began(job),
        "ended": timeline.ended(job),
        "elapsed": timeline.elapsed(job, now),
        "exit": {"code": job.exit_code, "signal": job.exit_signal},
        "restarts": job.restarts,
        "opted_in": failovers.opted_in,
        "failovers": failovers.count,
        "limit": failovers.limit,
        "cause": view.cause or None,
        "excluded": [_text(name) for name in failovers.excluded],
        "stdout": _text(job.stdout) or None,
        "time_lost": timeline.time_lost(view, now),
        "next": _text(outlook.next_of(view, held)),
        "attempts": [_attempt(lap) for lap in timeline.laps(view, now)],
    }


def _attempt(lap: Lap) -> dict[str, Any]:
    return {
        "attempt": lap.number,
        "restart": lap.restart,
        "nodes": _text(lap.nodes) or None,
        "started": lap.started,
        "ended": lap.ended,
        "domain": lap.domain.value if lap.cause else None,
        "cause": lap.cause or None,
        "excluded": [_text(name) for name in lap.bad_nodes],
        "counted": lap.counted,
        "evidence": [_text(text) for text in lap.evidence],
        "from_scratch": None if lap.step is None else lap.step == FROM_SCRATCH,
        "step": None if lap.step in (None, FROM_SCRATCH) else lap.step,
        "checkpoint_saved": lap.saved,
        "waited": lap.waited,
        "work_lost": lap.work_lost,
    }


def _text(text: str) -> str:
    """What is not UTF-8 in a name or a comment becomes a question mark: JSON has no other way."""
    return text.encode("utf-8", "replace").decode("utf-8")

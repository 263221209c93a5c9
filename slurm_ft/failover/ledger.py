"""The ledger: a job's history as JSON in its AdminComment, where its owner cannot rewrite it and anybody can read it.

    slurm_ft:{"v":1,"run":"3f2a9c…","excluded":["n1"],"attempts":[{"no":0,"nodes":"n1","cause":"xid79",…}]}

AdminComment has no length limit in Slurm (measured on 22.05 and 26.05). Other tools may write there too, so foreign
text before and behind the ledger is kept byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from slurm_ft.model import Attempt, Domain, Ledger

SCHEMA_VERSION = 1
PREFIX = "slurm_ft:"
START = PREFIX + "{"
TEXT_LIMIT = 160  # characters of one evidence line
_DECODER = json.JSONDecoder()
DAMAGED_MOST = 64  # damaged ledgers before ours that are looked through; each costs a look at all of the text
ATTEMPTS_KEPT = 64  # uncounted attempts (preemptions …) beyond this drop out, oldest first


@lru_cache(maxsize=64)  # as comment_tag.read
def read(admin_comment: str) -> Ledger | None:
    """The ledger in `admin_comment`, or None if there is none or it was damaged."""
    found = _locate(admin_comment)
    return found[2] if found else None


def write(admin_comment: str, ledger: Ledger) -> str:
    """`admin_comment` with its ledger replaced, or with the ledger appended."""
    text = PREFIX + json.dumps(_to_json(ledger), separators=(",", ":"))
    found = _locate(admin_comment)
    if found:
        return admin_comment[: found[0]] + text + admin_comment[found[1] :]
    return f"{admin_comment} {text}" if admin_comment else text


def add(ledger: Ledger, attempt: Attempt) -> Ledger:
    """`ledger` with an ended attempt and its bad nodes. One that is in it already is not added twice; a failover takes
    the place of the same attempt that was entered as an unexplained restart."""
    same = next((known for known in ledger.attempts if known.number == attempt.number), None)
    if same is not None and (same.counted or not attempt.counted):
        return ledger
    others = (known for known in ledger.attempts if known is not same)
    shortened = replace(attempt, text=attempt.text[:TEXT_LIMIT])
    return Ledger(
        run_id=ledger.run_id,
        attempts=_bounded(tuple(sorted((*others, shortened), key=lambda known: known.number))),
        excluded=tuple(dict.fromkeys((*ledger.excluded, *attempt.bad_nodes))),
    )


def forgive(ledger: Ledger, in_service: Collection[str]) -> Ledger:
    """`ledger` without the exclusions of repaired nodes: drained when they were excluded, and taking jobs again.

    Somebody has returned them. A node that was excluded and never drained has not been repaired by being in service.
    """
    kept = tuple(node for node in ledger.excluded if node not in in_service or not _was_drained(ledger, node))
    return replace(ledger, excluded=kept)


def _was_drained(ledger: Ledger, node: str) -> bool:
    """When it was last excluded."""
    last = next((attempt for attempt in reversed(ledger.attempts) if node in attempt.bad_nodes), None)
    return last is not None and node in last.drained


def _bounded(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    surplus = len(attempts) - ATTEMPTS_KEPT
    droppable = [attempt for attempt in attempts if not attempt.counted][: max(surplus, 0)]
    return tuple(attempt for attempt in attempts if attempt not in droppable)


def _locate(admin_comment: str) -> tuple[int, int, Ledger] | None:
    """Where the first whole ledger stands. A damaged one is foreign text: what is written behind it must be found."""
    start = admin_comment.find(START)
    for _ in range(DAMAGED_MOST):
        if start < 0:
            break
        try:
            value, end = _DECODER.raw_decode(admin_comment, start + len(PREFIX))
            return start, end, _from_json(value)
        except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError):
            start = admin_comment.find(START, start + 1)
    return None


def _to_json(ledger: Ledger) -> dict[str, Any]:
    return {
        "v": SCHEMA_VERSION,
        "run": ledger.run_id,
        "excluded": list(ledger.excluded),
        "attempts": [_attempt_to_json(attempt) for attempt in ledger.attempts],
    }


def _attempt_to_json(attempt: Attempt) -> dict[str, Any]:
    return {
        "no": attempt.number,
        "nodes": attempt.nodes,
        "started": attempt.started,
        "ended": round(attempt.ended, 3),
        "domain": attempt.domain.value,
        "cause": attempt.cause,
        "bad": list(attempt.bad_nodes),
        "counted": attempt.counted,
        "text": attempt.text,
        **({} if attempt.step is None else {"step": attempt.step}),
        **({} if attempt.saved is None else {"saved": attempt.saved}),
        **({"drained": list(attempt.drained)} if attempt.drained else {}),
    }


def _from_json(value: Mapping[str, Any]) -> Ledger:
    return Ledger(
        run_id=str(value["run"]),
        excluded=tuple(str(node) for node in value["excluded"]),
        attempts=tuple(_attempt_from_json(item) for item in value["attempts"]),
    )


def _attempt_from_json(item: Mapping[str, Any]) -> Attempt:
    return Attempt(
        number=int(item["no"]),
        nodes=str(item["nodes"]),
        started=None if item["started"] is None else float(item["started"]),
        ended=float(item["ended"]),
        domain=Domain(item["domain"]),
        cause=str(item["cause"]),
        bad_nodes=tuple(str(node) for node in item["bad"]),
        counted=bool(item["counted"]),
        text=str(item.get("text", "")),
        step=None if item.get("step") is None else int(item["step"]),
        saved=None if item.get("saved") is None else int(item["saved"]),
        drained=tuple(str(node) for node in item.get("drained", ())),
    )

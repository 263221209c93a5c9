r"""The job's own tag in its Comment: from which step each attempt resumes. Pure.

    [slurm_ft.resume step=1200 attempt=3 since=1]   attempt 3 resumes from step 1200, as attempts 1 and 2 did
    [slurm_ft.resume step=1200 attempt=0 saved=1764429940]   the unix time at which that checkpoint was written
    [slurm_ft.resume step=none attempt=0]           it starts from scratch
    [slurm_ft.resume step=1200 attempt=3 alert=restarted_from_zero]

`attempt` is Slurm's restart count, `since` the first of the attempts in a row that chose this step (absent: this one).
The job's user writes it, once per attempt, beside the controller's tag and all foreign text, which stay byte for byte.
So it is text that a user controls: it may say anything, and whoever reads it may at most believe it about this job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from slurm_ft.failover.comment_tag import COMMENT_LIMIT, size

# Bytes that are left for the controller's tag, which grows from `[slurm_ft]` to the count, the nodes and the cause.
RESERVE = 64
_TAG = re.compile(r"\[slurm_ft\.resume(?P<fields>(?: [^\[\]\n]*)?)\]")
_STEP = re.compile(r"[0-9]{1,18}")
_ATTEMPT = re.compile(r"[0-9]{1,9}")
_TIME = re.compile(r"[0-9]{1,11}")
_WORD = re.compile(r"[a-z_]{1,40}")


@dataclass(frozen=True, slots=True)
class ResumeMark:
    """What the tag says of one attempt. `step` is None for a start from scratch."""

    step: int | None
    attempt: int
    since: int
    alert: str = ""
    saved: int | None = None  # unix seconds: when the newest file of that checkpoint was written

    @property
    def without_progress(self) -> int:
        """How many attempts before this one started from the same step: none of them left a newer checkpoint."""
        return self.attempt - self.since


@lru_cache(maxsize=64)  # as comment_tag.read
def read(comment: str) -> ResumeMark | None:
    """The first such tag in `comment`; None if there is none or it makes no sense."""
    match = _TAG.search(comment)
    if match is None:
        return None
    pairs: dict[str, str] = dict(word.partition("=")[::2] for word in match["fields"].split())
    step, attempt = pairs.get("step", ""), pairs.get("attempt", "")
    if not (step == "none" or _STEP.fullmatch(step)) or not _ATTEMPT.fullmatch(attempt):
        return None
    first, alert = pairs.get("since", attempt), pairs.get("alert", "")
    since = int(first) if _ATTEMPT.fullmatch(first) else int(attempt)
    return ResumeMark(
        step=None if step == "none" else int(step),
        attempt=int(attempt),
        since=min(since, int(attempt)),
        alert=alert if _WORD.fullmatch(alert) else "",
        saved=int(pairs["saved"]) if _TIME.fullmatch(pairs.get("saved", "")) else None,
    )


def following(before: ResumeMark | None, step: int | None, attempt: int) -> ResumeMark:
    """The mark of an attempt that starts from `step`, where `before` is the last one of the same job."""
    if before is None or before.attempt > attempt:  # none, or one that cannot be true
        return ResumeMark(step, attempt, attempt)
    return ResumeMark(step, attempt, before.since if before.step == step else attempt)


def write(comment: str, mark: ResumeMark) -> str | None:
    """`comment` with the tag replaced or appended; None if not even its shortest form leaves room for the controller's.

    The alert goes first, then `saved`, then `since`: step and attempt always stay.
    """
    candidates = (_replace(comment, text) for text in _forms(mark))
    return next((text for text in candidates if size(text) <= COMMENT_LIMIT - RESERVE), None)


def _forms(mark: ResumeMark) -> tuple[str, ...]:
    shortest = f"[slurm_ft.resume step={'none' if mark.step is None else mark.step} attempt={mark.attempt}"
    since = f" since={mark.since}" if mark.since != mark.attempt else ""
    alert = f" alert={mark.alert}" if mark.alert else ""
    saved = f" saved={mark.saved}" if mark.saved is not None else ""
    parts = (since, saved, alert)
    return tuple(f"{shortest}{''.join(parts[:kept])}]" for kept in range(len(parts), -1, -1))


def _replace(comment: str, text: str) -> str:
    match = _TAG.search(comment)
    if match is None:
        return f"{comment} {text}" if comment else text
    return comment[: match.start()] + text + comment[match.end() :]

"""An alert as people read it: a title and a body of `name: text` lines. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from slurm_ft.alert import Alert

TITLE_LIMIT = 100  # characters; Datadog takes no more


def title(alert: Alert) -> str:
    """One line that says how urgent it is and what happened."""
    text = tame(f"[{alert.severity.value}] slurm_ft: {alert.what}")
    return text if len(text) <= TITLE_LIMIT else text[: TITLE_LIMIT - 1] + "…"


def body(alert: Alert, untold: int = 0) -> str:
    """The whole. `untold`: how many such alerts were held back since the last one was told."""
    who = f"{alert.job} {alert.job_name}".strip()
    lines = {
        "what": alert.what,
        "when": datetime.fromtimestamp(alert.at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "cluster": alert.cluster,
        "job": who,
        "user": alert.user,
        "count": alert.count,
        "nodes": alert.nodes,
        "cause": alert.cause,
        "log line": alert.line,
        "last checkpoint": alert.checkpoint,
        "what happens next": alert.following,
        "look closer": alert.command,
        "more like it": f"{untold} since the last one was told" if untold else "",
    }
    return "\n".join(f"{name}: {tame(text)}" for name, text in lines.items() if text)


def tame(text: str) -> str:
    """Users choose their job's name and what it prints: it must not call a whole chat room or hide behind a link.

    A zero-width space takes the meaning from `@here`, `<!channel>` and `[text](url)`, and leaves the look.
    """
    return re.sub(r"(?<=@)(?=\w)|(?<=<)(?=[!@#])|(?<=\])(?=\()", "\u200b", text)

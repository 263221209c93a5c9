"""The one place from which a person is told that something needs attention, and what he is told: an Alert.

`alert()` writes a line into the log; the log of a hook also puts it into the spool (alerts/spooling.py), from where
`slurm-ft alert send` delivers it. It never raises, and never waits for anybody: it is called from hooks.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from logging import Logger
from typing import Any

SCHEMA_VERSION = 1
FIELD_LIMIT = 500  # characters of one text; whoever controls a job's name or its output controls no more than that


class Severity(str, Enum):
    """How urgent it is. The words are those of most Alertmanager installations."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """The greater, the more urgent."""
        return list(Severity).index(self)


class Kind(str, Enum):
    """What has happened."""

    REPEATED_RESTARTS = "repeated_restarts"
    LIMIT_REACHED = "limit_reached"
    UNKNOWN_VERDICT = "unknown_verdict"
    INTERNAL_ERROR = "internal_error"  # no hardware signal: most likely the program's own error
    BREAKER_OPEN = "breaker_open"
    LEMON_NODE = "lemon_node"
    NO_PROGRESS = "no_checkpoint_progress"
    NO_VALID_CHECKPOINT = "no_valid_checkpoint"
    NOT_RESUMED = "not_resumed"  # training did not go on from the checkpoint that was chosen
    CHECKPOINTING_DISABLED = "checkpointing_disabled"
    HOOK_FAILED = "hook_failed"
    OPERATION = "operation"  # anything else that a person has to see to
    DIGEST = "digest"  # stands for alerts that were too many to be told one by one
    TEST = "test"


SEVERITIES: Mapping[Kind, Severity] = {
    Kind.REPEATED_RESTARTS: Severity.WARNING,
    Kind.LIMIT_REACHED: Severity.CRITICAL,
    Kind.UNKNOWN_VERDICT: Severity.WARNING,
    Kind.INTERNAL_ERROR: Severity.INFO,
    Kind.BREAKER_OPEN: Severity.CRITICAL,
    Kind.LEMON_NODE: Severity.WARNING,
    Kind.NO_PROGRESS: Severity.WARNING,
    Kind.NO_VALID_CHECKPOINT: Severity.CRITICAL,
    Kind.NOT_RESUMED: Severity.WARNING,
    Kind.CHECKPOINTING_DISABLED: Severity.CRITICAL,
    Kind.HOOK_FAILED: Severity.CRITICAL,
    Kind.OPERATION: Severity.WARNING,
    Kind.DIGEST: Severity.CRITICAL,
    Kind.TEST: Severity.INFO,
}


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. `at` is unix seconds; what is not known is empty, and left out of the message.

    `subject` says what it is about ("job 12 run 3f…", "node n1"): a second alert of this kind about the same subject
    within the cool-down is not told.
    """

    kind: Kind
    what: str  # one line
    at: float
    subject: str
    cluster: str = ""
    job: str = ""  # as Slurm addresses it
    job_name: str = ""
    user: str = ""
    count: str = ""  # "2 of 3 failovers spent"
    nodes: str = ""
    cause: str = ""
    line: str = ""  # the line of a log that shows the cause
    checkpoint: str = ""  # the last one known
    following: str = ""  # what happens next
    command: str = ""  # to look closer

    @property
    def severity(self) -> Severity:
        """How urgent it is."""
        return SEVERITIES[self.kind]

    @property
    def key(self) -> str:
        """The same for alerts that tell the same."""
        return f"{self.kind.value}|{self.cluster}|{self.subject}"


def alert(log: Logger, what: str, about: Alert | None = None) -> None:
    """Tell `what` happened and what to do, in one line. `about` holds more of it for those who are told elsewhere."""
    told = about or Alert(Kind.OPERATION, what, time.time(), subject=what)
    log.error("ALERT: %s", in_one_line(what), extra={ATTRIBUTE: told})


def breaker_opened(log: Logger, why: str) -> None:
    """Tell that failover has stopped on the whole cluster."""
    what = f"{why}: no node is drained and no job requeued until `slurm-ft unpause`"
    alert(log, what, Alert(Kind.BREAKER_OPEN, what, time.time(), "the breaker", command="slurm-ft nodes"))


ATTRIBUTE = "slurm_ft_alert"  # of the log's record

_TEXTS = tuple(field.name for field in fields(Alert) if field.name not in ("kind", "at"))


def to_json(alert: Alert) -> dict[str, Any]:
    """Every text in one line, without control characters, and bounded; what is empty is left out."""
    texts = {name: in_one_line(text) for name, text in asdict(alert).items() if name in _TEXTS and text}
    return {"v": SCHEMA_VERSION, "kind": alert.kind.value, "at": alert.at, **texts}


def from_json(value: object) -> Alert | None:
    """None for what is no alert of ours."""
    try:
        if not isinstance(value, dict):
            return None
        texts = {name: in_one_line(str(value.get(name, ""))) for name in _TEXTS}
        return Alert(kind=Kind(value["kind"]), at=float(value["at"]), **texts)
    except (KeyError, TypeError, ValueError):
        return None


def in_one_line(text: str) -> str:
    """Bounded, and without what would move a cursor, start a new mail header or break a line."""
    printable = re.sub(r"\s+", " ", "".join(char if char.isprintable() else " " for char in text)).strip()
    return printable if len(printable) <= FIELD_LIMIT else printable[: FIELD_LIMIT - 1] + "…"

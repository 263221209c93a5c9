"""What the doctor found: one line with its level, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(str, Enum):
    """`warning`: it works, but less well than it could. `fail`: a fault would go unseen, or nothing would follow."""

    OK = "ok"
    WARNING = "warning"
    FAIL = "fail"


class Stage(str, Enum):
    """The stages of the pipeline, in the order of a fault's way."""

    CONFIG = "config"
    SLURM = "slurm"
    HOOKS = "hooks"
    SENSORS = "sensors"
    VERDICT = "verdict"
    DECISION = "decision"
    RECORDS = "records"
    SERVICES = "services"
    ALERTS = "alerts"
    CANARY = "canary"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. `fix` is a command or a setting; empty where there is nothing to mend."""

    stage: Stage
    level: Level
    what: str
    fix: str = ""


def ok(stage: Stage, what: str) -> Finding:
    """As it should be."""
    return Finding(stage, Level.OK, what)


def warning(stage: Stage, what: str, fix: str) -> Finding:
    """It works, but less well."""
    return Finding(stage, Level.WARNING, what, fix)


def fail(stage: Stage, what: str, fix: str) -> Finding:
    """It does not work."""
    return Finding(stage, Level.FAIL, what, fix)


def text_of(finding: Finding) -> str:
    """For people: the level, the stage, what was found; the fix on a line of its own."""
    line = f"{finding.level.value:<8} {finding.stage.value}: {finding.what}"
    return f"{line}\n{'':<8} -> {finding.fix}" if finding.fix else line


def healthy(findings: tuple[Finding, ...]) -> bool:
    """Whether nothing fails."""
    return all(finding.level is not Level.FAIL for finding in findings)

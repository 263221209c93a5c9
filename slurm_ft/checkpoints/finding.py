"""What a check finds out about a checkpoint: a verdict, never a boolean."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Level(IntEnum):
    """How closely a checkpoint is looked at. Each level includes the ones before it."""

    QUICK = 1  # names, sizes, end records and headers: milliseconds per checkpoint
    STRUCTURAL = 2  # indexes against shards, metadata against storage files, world size, keys: milliseconds per file
    DEEP = 3  # every byte: checksums, digests, NaN and Inf in the weights

    @property
    def word(self) -> str:
        """The level's name as the command line spells it."""
        return self.name.lower()


class Verdict(str, Enum):
    """How sound a checkpoint is, from best to worst."""

    VALID = "valid"
    DEGRADED = "degraded"  # training can go on, but a part of the state is missing: RNG, data position, scaler
    WEIGHTS_ONLY = "weights-only"  # a model without its optimizer: never resumed from on its own
    INCONSISTENT = "inconsistent"  # world size, step or owner do not match
    INCOMPLETE = "incomplete"  # a save was interrupted
    CORRUPT = "corrupt"  # content is damaged, or is no checkpoint at all
    UNREADABLE = "unreadable"  # the storage did not answer: nothing is known


SEVERITY = {verdict: place for place, verdict in enumerate(Verdict)}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. `reason` is one plain sentence; empty for a valid one.

    `note` is worth saying without changing the verdict, such as "saved without checksums".
    """

    verdict: Verdict
    reason: str = ""
    note: str = ""

    @property
    def resumable(self) -> bool:
        """True if training may start from it."""
        return self.verdict in (Verdict.VALID, Verdict.DEGRADED)


VALID = Finding(Verdict.VALID)


def incomplete(reason: str) -> Finding:
    """An interrupted save."""
    return Finding(Verdict.INCOMPLETE, reason)


def corrupt(reason: str) -> Finding:
    """Damaged content."""
    return Finding(Verdict.CORRUPT, reason)


def inconsistent(reason: str) -> Finding:
    """Parts that do not belong together."""
    return Finding(Verdict.INCONSISTENT, reason)


def note(text: str) -> Finding:
    """Valid, with something worth saying."""
    return Finding(Verdict.VALID, note=text)


def combine(findings: Iterable[Finding]) -> Finding:
    """Return one finding for all: the worst verdict, its first reason, and every different note."""
    found = tuple(findings)
    if not found:
        return VALID
    worst = max(found, key=lambda finding: SEVERITY[finding.verdict])  # the first of equals
    notes = dict.fromkeys(finding.note for finding in found if finding.note)
    return Finding(worst.verdict, worst.reason, "; ".join(notes))

"""A site's own reading of single events: who is to blame, and whether the node is drained. Applied before any rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slurm_ft.classify.fact import Blame
from slurm_ft.model import EventKind

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_ft.classify.findings import Finding


@dataclass(frozen=True, slots=True)
class Override:
    """One row. None leaves what the tables say; `reason` is shown with every verdict that it changes."""

    blame: Blame | None
    drains: bool | None
    reason: str


if TYPE_CHECKING:
    Overrides = Mapping[tuple[EventKind, int | str], Override]  # by code, or by name where there is none


def apply_override(finding: Finding, overrides: Overrides) -> Finding:
    """`finding` as the site reads it.

    A class given without a node action drains exactly when it is `hardware`: who calls a code hardware wants the node
    out of the way. A node action of `none` holds however often it happens. Xid 154 is stronger than all of it: the
    driver knows better whether its GPU needs a reset.
    """
    event = finding.event
    override = overrides.get((event.kind, finding.cause if event.code is None else event.code))
    if override is None:
        return finding
    blame = override.blame or finding.blame
    drains = override.drains
    if drains is None:
        drains = finding.drains if override.blame is None else blame is Blame.HARDWARE
    repeat = override.drains is not False
    return replace(
        finding, blame=blame, drains=drains, may_repeat=repeat, what=f"{finding.what} (this site: {override.reason})"
    )

"""Events whose repetition on one GPU across different jobs says more than each of them alone: a table.

Xid 13 and 31 are the program's. NVIDIA's workflows: 13 that repeats on the same TPC and GPC, and 31 that repeats on the
same GPU, call for a field diagnosis; on different ones they are the program's. One user's bug repeats as well, and so
does a library's, on any GPU it meets: only jobs of several users count, and only if no other GPU of the node has seen
the like.

A memory error that the GPU contained (Xid 94 and its like) is the hardware's from the first: the job fails over, and
the node stays. No program can cause it, so its repetition drains the node whoever the users are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_ft.model import EventKind

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_ft.model import Event


@dataclass(frozen=True, slots=True)
class Repeat:
    """What makes a repetition count: `jobs` earlier ones of `users` different users, on the same GPU.

    `place`: and at the same place in it. `only_here`: and on no other GPU of the node.
    """

    jobs: int
    users: int
    place: re.Pattern[str] | None = None
    only_here: bool = False


_TPC = re.compile(r"\(GPC ([0-9]{1,3}), TPC ([0-9]{1,3})\b")
_CONTAINED = Repeat(jobs=2, users=1)

REPEATS: Mapping[tuple[EventKind, int | str], Repeat] = {
    (EventKind.XID, 13): Repeat(jobs=2, users=2, place=_TPC, only_here=True),
    (EventKind.XID, 31): Repeat(jobs=2, users=2, only_here=True),
    (EventKind.XID, 94): _CONTAINED,
    (EventKind.GPU_STATE, "ecc_uncorrected_now"): _CONTAINED,
    (EventKind.GPU_STATE, "row_remapped"): _CONTAINED,
    (EventKind.GPU_STATE, "page_retired"): _CONTAINED,
    (EventKind.GPU_STATE, "poison_contained"): _CONTAINED,
    (EventKind.GPU_STATE, "pcie_fatal"): _CONTAINED,
}


@dataclass(frozen=True, slots=True)
class PastFault:
    """What an earlier job of this node met, and nobody was drained for. `what` is `xid31`, or an event's name."""

    raw_id: int
    user: int
    what: str
    pci: str
    place: str  # GPC and TPC of Xid 13


def repeat_of(event: Event) -> Repeat | None:
    """The row of an event; None for one whose repetition means nothing."""
    return REPEATS.get((event.kind, event.name if event.code is None else event.code))


def past_fault(event: Event, raw_id: int, user: int) -> PastFault | None:
    """What is to be remembered of an event; None for one whose repetition would mean nothing."""
    row = repeat_of(event)
    if row is None or event.pci is None:
        return None
    place = row.place.search(event.source) if row.place else None
    if row.place and place is None:
        return None
    what = event.name if event.code is None else f"{event.kind.value}{event.code}"
    return PastFault(raw_id, user, what, event.pci, f"GPC{place[1]}/TPC{place[2]}" if place else "")


def repeats(event: Event, history: Sequence[PastFault]) -> int:
    """In how many earlier jobs the same happened in the same place; 0 if that is too little to count.

    `history` must not hold the job's own faults.
    """
    row, now = repeat_of(event), past_fault(event, 0, 0)
    if row is None or now is None:
        return 0
    alike = [past for past in history if past.what == now.what]
    same = [past for past in alike if (past.pci, past.place) == (now.pci, now.place)]
    elsewhere = row.only_here and any(past.pci != now.pci for past in alike)
    jobs, users = {past.raw_id for past in same}, {past.user for past in same}
    return 0 if elsewhere or len(jobs) < row.jobs or len(users) < row.users else len(jobs)

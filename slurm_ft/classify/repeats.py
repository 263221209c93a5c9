"""Xid 13 and 31 that repeat on one GPU across different jobs: then not the programs, but the GPU.

NVIDIA's workflows: 13 that repeats on the same TPC and GPC, and 31 that repeats on the same GPU, call for a field
diagnosis; on different ones they are the program's. One user's bug repeats as well, and so does a library's, on any GPU
it meets: only jobs of several users count, and only if no other GPU of the node has seen the like.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_ft.model import EventKind

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_ft.model import Event

MIN_JOBS = 2  # earlier ones, besides the job that is judged
MIN_USERS = 2  # of those
_EXCEPTION, _MMU_FAULT = 13, 31
_PLACE = re.compile(r"\(GPC ([0-9]{1,3}), TPC ([0-9]{1,3})\b")


@dataclass(frozen=True, slots=True)
class PastFault:
    """What an earlier job of this node met, and nobody was drained for."""

    raw_id: int
    user: int
    code: int
    pci: str
    place: str  # GPC and TPC of Xid 13


def past_fault(event: Event, raw_id: int, user: int) -> PastFault | None:
    """What is to be remembered of an event; None for one whose repetition would mean nothing."""
    if event.kind is not EventKind.XID or event.code is None or event.pci is None:
        return None
    place = _PLACE.search(event.source)
    if event.code == _MMU_FAULT:
        return PastFault(raw_id, user, event.code, event.pci, "")
    if event.code == _EXCEPTION and place is not None:
        return PastFault(raw_id, user, event.code, event.pci, f"GPC{place[1]}/TPC{place[2]}")
    return None


def repeats(event: Event, history: Sequence[PastFault]) -> int:
    """In how many earlier jobs the same happened in the same place; 0 if that convicts nobody.

    `history` must not hold the job's own faults.
    """
    now = past_fault(event, 0, 0)
    if now is None:
        return 0
    alike = [past for past in history if past.code == now.code]
    same = [past for past in alike if (past.pci, past.place) == (now.pci, now.place)]
    elsewhere = any(past.pci != now.pci for past in alike)
    jobs, users = {past.raw_id for past in same}, {past.user for past in same}
    return 0 if elsewhere or len(jobs) < MIN_JOBS or len(users) < MIN_USERS else len(jobs)

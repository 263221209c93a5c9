"""What the user asks `slurm-ft status` for: which states, which fields, in which order. Pure.

Each reader takes the text of an option and raises ValueError with what is wrong in it and what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_ft.model import JobState
from slurm_ft.status.fields import ALL, Field
from slurm_ft.status.render import BY_DEFAULT, Chosen
from slurm_ft.status.view import JobView

# The states that squeue 22.05 to 26.05 all know, with their short names.
OF_SLURM: Mapping[str, str] = {
    "BF": "BOOT_FAIL", "CA": "CANCELLED", "CD": "COMPLETED", "CF": "CONFIGURING", "CG": "COMPLETING", "DL": "DEADLINE",
    "F": "FAILED", "NF": "NODE_FAIL", "OOM": "OUT_OF_MEMORY", "PD": "PENDING", "PR": "PREEMPTED", "R": "RUNNING",
    "RD": "RESV_DEL_HOLD", "RF": "REQUEUE_FED", "RH": "REQUEUE_HOLD", "RQ": "REQUEUED", "RS": "RESIZING",
    "RV": "REVOKED", "SI": "SIGNALING", "SE": "SPECIAL_EXIT", "SO": "STAGE_OUT", "ST": "STOPPED", "S": "SUSPENDED",
    "TO": "TIMEOUT",
}  # fmt: skip
OURS: Mapping[str, JobState] = {
    state.value.removeprefix("Pending - "): state for state in JobState if state.value.startswith("Pending - ")
}
EVERYTHING = "all"
_FIELD = re.compile(r"(?P<name>[a-z()]+)(?::(?P<width>\d{1,4}))?")


@dataclass(frozen=True, slots=True)
class States:
    """Which states are wanted. With only Slurm's own, or with none named, squeue itself chooses."""

    of_slurm: frozenset[str] = frozenset()
    ours: frozenset[JobState] = frozenset()

    @property
    def for_squeue(self) -> str:
        """What `--states` of squeue is to be told; "" for all."""
        return "" if self.ours else ",".join(sorted(self.of_slurm))

    def admit(self, view: JobView) -> bool:
        """Whether the job is wanted."""
        if not self.ours and not self.of_slurm:
            return True
        return view.state in self.ours or view.job.state in self.of_slurm


def states(text: str) -> States:
    """`R,failoverinprogress`: Slurm's names, short or long, and ours, with any capitals."""
    names = [name for name in text.split(",") if name]
    if EVERYTHING in map(str.lower, names):
        return States()
    ours = {OURS[name.lower()] for name in names if name.lower() in OURS}
    of_slurm = {_slurm_state(name) for name in names if name.lower() not in OURS}
    return States(frozenset(of_slurm), frozenset(ours))


def _slurm_state(name: str) -> str:
    upper = name.upper()
    if upper in OF_SLURM.values():
        return upper
    if upper in OF_SLURM:
        return OF_SLURM[upper]
    known = ", ".join((*OURS, *(f"{long} ({short})" for short, long in OF_SLURM.items())))
    raise ValueError(f"no state is called {name!r}; there are: {known}")


def fields(text: str) -> tuple[Chosen, ...]:
    """`jobid,state:12,cause`: names, each with a width if there is to be one; `all` is every field."""
    if text.lower() == EVERYTHING:
        return tuple(Chosen(field) for field in ALL.values())
    if text.startswith("+"):
        return (*BY_DEFAULT, *fields(text.removeprefix("+")))
    if "%" in text:
        raise ValueError(f"{text!r} is a format of squeue's -o; name fields instead, such as jobid,state:30,cause")
    chosen = tuple(_chosen(part) for part in text.split(",") if part)
    if not chosen:
        raise ValueError(f"{text!r} names no field; write names such as jobid,state:30,cause")
    return chosen


def _chosen(text: str) -> Chosen:
    match = _FIELD.fullmatch(text.lower())
    if match is None or match["width"] == "0":
        raise ValueError(f"{text!r} is no field; write its name, or name:width with a width from 1 to 9999")
    return Chosen(_named(match["name"]), int(match["width"] or 0))


def _named(name: str) -> Field:
    if name not in ALL:
        raise ValueError(f"no field is called {name!r}; there are: {', '.join(ALL)}")
    return ALL[name]


@dataclass(frozen=True, slots=True)
class Order:
    """By which fields to sort, the most important first; True for the greatest first. None: squeue's own order."""

    by: tuple[tuple[Field, bool], ...] = ()

    def sorted(self, views: Sequence[JobView], now: float) -> list[JobView]:
        """Equal ones stay in the order that squeue gave them."""
        ordered = list(views)
        for field, descending in reversed(self.by):
            ordered.sort(key=_key(field, now), reverse=descending)
        return ordered


def _key(field: Field, now: float) -> Callable[[JobView], Any]:
    return lambda view: field.key(view, now)


def order(text: str) -> Order:
    """`-attempt,jobid`: a minus for the greatest first."""
    names = [part for part in text.split(",") if part]
    return Order(tuple((_named(name.lstrip("+-").lower()), name.startswith("-")) for name in names))

"""Slurm's nodelist expressions (`n[1-3,7],login1`) as sets of names, through ClusterShell."""

from __future__ import annotations

import re
from collections.abc import Iterable

from slurm_ft.errors import SlurmFtError

_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")


def expand(expression: str) -> tuple[str, ...]:
    """The node names of an expression, in order. Raises SlurmFtError for what is none."""
    if not expression:
        return ()
    from ClusterShell.NodeSet import NodeSet, NodeSetException  # noqa: PLC0415  30 ms that most hooks never need

    try:
        return tuple(NodeSet(expression, resolver=_no_groups()))
    except NodeSetException as error:
        raise SlurmFtError(f"nodelist {expression!r} cannot be read: {error}") from error


def fold(names: Iterable[str]) -> str:
    """The shortest expression for `names`, as Slurm writes it. What is no plain name stays as it is."""
    names = tuple(names)
    if len(names) < 2 or not all(_PLAIN.fullmatch(name) for name in names):
        return ",".join(names)
    from ClusterShell.NodeSet import NodeSet  # noqa: PLC0415

    return str(NodeSet.fromlist(names, resolver=_no_groups()))


def merge(*expressions: str) -> str:
    """The union of several expressions."""
    return fold(dict.fromkeys(name for expression in expressions for name in expand(expression)))


def _no_groups() -> object:
    """`@group` syntax means nothing to Slurm, and looking groups up would start a command."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP  # noqa: PLC0415

    return RESOLVER_NOGROUP

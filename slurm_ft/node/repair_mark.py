"""A line in the kernel log that says: up to here, faults of this node have led to a drain.

Whoever returns the node to service answers for its repair, so the Prolog's gate looks only behind the last such line.
Written to the log itself, since its clock drifts from every other one; a reboot, which repairs too, empties it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slurm_ft.slurm import environment

KMSG = Path("/dev/kmsg")


def text(environ: Mapping[str, str]) -> str:
    """The line of a hook's node; several nodes, and several clusters, may be on one machine."""
    cluster, node = environ.get(environment.CLUSTER, ""), environment.node_name(environ)
    return f"slurm_ft: drained node={node} cluster={cluster}: the faults before this line were dealt with"


def write(environ: Mapping[str, str], log: Path = KMSG) -> None:
    """Append the line to the kernel log, if that is what `log` is. Never raises: without it a repaired node is drained
    once more, and says so."""
    if log != KMSG:
        return
    try:
        with log.open("wb", buffering=0) as kmsg:
            kmsg.write(f"<5>{text(environ)}\n".encode())
    except OSError:
        return

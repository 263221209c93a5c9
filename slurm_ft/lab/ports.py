"""Finds TCP ports that nobody uses."""

from __future__ import annotations

import random
import socket

from slurm_ft.lab.errors import LabError

# Below the range from which Linux takes ports for outgoing connections (32768 and up), above the well-known services.
LOWEST, HIGHEST = 12000, 32000


def free_ports(count: int) -> tuple[int, ...]:
    """`count` different ports, each free a moment ago. Random, so that two labs seldom want the same ones."""
    candidates = random.sample(range(LOWEST, HIGHEST), k=min(HIGHEST - LOWEST, 20 * count + 200))
    found: list[int] = []
    for port in candidates:
        if is_free(port):
            found.append(port)
        if len(found) == count:
            return tuple(found)
    raise LabError(
        f"found only {len(found)} of {count} free TCP ports between {LOWEST} and {HIGHEST}",
        "Stop other local clusters (slurm-ft lab status), or ask for fewer nodes.",
    )


def is_free(port: int) -> bool:
    """Whether a daemon could bind the port now. Slurm binds all addresses, so this does too."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", port))
        except OSError:
            return False
    return True

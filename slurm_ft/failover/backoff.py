"""How long a job waits between two attempts. Pure."""

from __future__ import annotations

from slurm_ft.config import Config


def pause(config: Config, failovers: int) -> float:
    """Seconds before the attempt behind the failover of this number (1 is the first); the last value is that of all
    later ones."""
    steps = config.backoff or (0.0,)
    return steps[min(max(failovers, 1), len(steps)) - 1]

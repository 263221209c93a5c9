"""What can go wrong with a local cluster."""

from __future__ import annotations

from slurm_ft.errors import SlurmFtError


class LabError(SlurmFtError):
    """The local cluster cannot be started, used or stopped."""


class PortTakenError(LabError):
    """Somebody else bound one of our ports after we had found it free; other ports may do."""


class LabTimeoutError(LabError):
    """Something that was waited for did not happen in time."""

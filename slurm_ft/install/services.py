"""Tell systemd what has changed, where it runs. Enabling is a link of the plan; this is the part that is not files."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from slurm_ft.errors import SlurmFtError
from slurm_ft.install.change import Place
from slurm_ft.install.observe import BOOTED

SYSTEMCTL = "/usr/bin/systemctl"


def running(place: Place) -> bool:
    """Whether this machine's services are systemd's, and it is this machine that is being changed."""
    return not place.staged and BOOTED.is_dir()


def restart(units: Sequence[str]) -> None:
    """Have systemd read the units anew, and run them. Raises SlurmFtError."""
    _systemctl("daemon-reload")
    if units:
        _systemctl("restart", *units)


def stop(units: Sequence[str]) -> None:
    """Stop them, before their files go. Raises SlurmFtError."""
    if units:
        _systemctl("stop", *units)


def reload() -> None:
    """Have systemd forget units whose files are gone. Raises SlurmFtError."""
    _systemctl("daemon-reload")


def _systemctl(*arguments: str) -> None:
    try:
        subprocess.run([SYSTEMCTL, *arguments], check=True, capture_output=True, text=True, timeout=120)
    except subprocess.CalledProcessError as error:
        raise SlurmFtError(
            f"systemctl {' '.join(arguments)} failed: {error.stderr.strip()}", "See journalctl"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmFtError(f"systemctl {' '.join(arguments)}: {error}", "Run it by hand") from error

"""Finds Slurm's and munge's programs, by path, and asks which version they are."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_ft.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterable

USUAL_DIRECTORIES = tuple(
    Path(name)
    for name in ("/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", "/opt/slurm/sbin", "/opt/slurm/bin")
)
NEEDED = ("slurmctld", "slurmd", "scontrol", "sbatch", "squeue", "sinfo", "scancel")
HINT = (
    "Install Slurm and munge (Debian, Ubuntu: apt-get install slurmctld slurmd slurm-client munge), "
    "or name the place of your own build with --slurm PREFIX."
)


@dataclass(frozen=True, slots=True)
class Installation:
    """One installed Slurm."""

    munged: Path
    slurmctld: Path
    slurmd: Path
    bin: Path  # where scontrol, sbatch, … are
    version: tuple[int, ...]


def find_installation(prefix: Path | None = None) -> Installation:
    """Look below `prefix`, or in the usual directories. munged may come from the system in both cases."""
    directories = USUAL_DIRECTORIES if prefix is None else (prefix / "sbin", prefix / "bin")
    found = {name: _find(name, directories) for name in NEEDED}
    munged = _find("munged", (*directories, *USUAL_DIRECTORIES))
    return Installation(
        munged=munged,
        slurmctld=found["slurmctld"],
        slurmd=found["slurmd"],
        bin=found["scontrol"].parent,
        version=_version(found["slurmctld"]),
    )


def parse_version(text: str) -> tuple[int, ...]:
    """`slurm-wlm 22.05.8` -> (22, 5, 8)."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise LabError(f"cannot read a Slurm version from {text.strip()!r}", "Is this slurmctld a working one?")
    return tuple(int(part) for part in match.groups(default="0"))


def dotted(version: tuple[int, ...]) -> str:
    """(22, 5, 8) -> `22.05.8`, as Slurm writes it."""
    major, minor, patch = version
    return f"{major}.{minor:02d}.{patch}"


def _find(program: str, directories: Iterable[Path]) -> Path:
    unique = tuple(dict.fromkeys(directories))
    for directory in unique:
        if (directory / program).is_file():
            return directory / program
    raise LabError(f"{program} is not in {', '.join(map(str, unique))}", HINT)


def _version(slurmctld: Path) -> tuple[int, ...]:
    try:
        done = subprocess.run(
            [str(slurmctld), "-V"], capture_output=True, text=True, errors="replace", timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LabError(f"`{slurmctld} -V` does not work: {error}", HINT) from error
    return parse_version(done.stdout)

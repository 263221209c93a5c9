"""What an installation made on this machine, so that `uninstall` undoes exactly that: one JSON file of root's."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_ft.errors import SlurmFtError
from slurm_ft.install.change import Made, Place
from slurm_ft.whole_file import write_whole

PATH = Path("/var/lib/slurm_ft_install/manifest.json")
SCHEMA_VERSION = 1
KINDS = ("directory", "file", "link", "lines")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The roles that were installed, and what was made, in that order."""

    roles: tuple[str, ...] = ()
    made: tuple[Made, ...] = ()

    def mark(self, kind: str, path: Path) -> str | None:
        """The mark of what we made there; None if we did not."""
        return next((one.mark for one in self.made if (one.kind, one.path) == (kind, path)), None)

    def with_(self, one: Made) -> Manifest:
        """A thing that is made anew takes the place of its older entry."""
        kept = tuple(other for other in self.made if (other.kind, other.path) != (one.kind, one.path))
        return Manifest(self.roles, (*kept, one))

    def of_roles(self, roles: Iterable[str]) -> Manifest:
        """With these roles too."""
        return Manifest(tuple(dict.fromkeys((*self.roles, *roles))), self.made)


def load(place: Place) -> Manifest:
    """An empty one where nothing was installed. Raises SlurmFtError."""
    path = place.at(PATH)
    try:
        with path.open(encoding="utf-8") as file:
            _refuse_of_others(path, file.fileno())
            return _parsed(json.load(file))
    except FileNotFoundError:
        return Manifest()
    except OSError as error:
        raise SlurmFtError(f"{path}: {error.strerror}", "Run as root") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SlurmFtError(f"{path}: not a manifest of slurm-ft install: {error}", "Restore it from a backup") from None


def save(place: Place, manifest: Manifest) -> None:
    """Raises OSError."""
    path = place.at(PATH)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    made = [{"kind": one.kind, "path": str(one.path), "mark": one.mark} for one in manifest.made]
    value = {"v": SCHEMA_VERSION, "roles": list(manifest.roles), "made": made}
    write_whole(path, json.dumps(value, indent=1) + "\n", 0o644)


def forget(place: Place) -> None:
    """Nothing of ours is left. Raises OSError."""
    path = place.at(PATH)
    path.unlink(missing_ok=True)
    if path.parent.is_dir():
        path.parent.rmdir()


def _refuse_of_others(path: Path, descriptor: int) -> None:
    """Root removes what it names."""
    status = os.fstat(descriptor)
    if (os.geteuid() == 0 and status.st_uid != 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SlurmFtError(f"{path}: somebody else than root can write to it", "Look who did, then chown and chmod it")


def _parsed(value: Any) -> Manifest:
    if value["v"] != SCHEMA_VERSION:
        raise ValueError(f"schema {value['v']}, this version reads {SCHEMA_VERSION}")
    return Manifest(tuple(map(str, value["roles"])), tuple(_made(one) for one in value["made"]))


def _made(value: Any) -> Made:
    kind, path = value["kind"], Path(value["path"])
    if kind not in KINDS or not path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{kind} {path}")
    return Made(kind, path, str(value["mark"]))

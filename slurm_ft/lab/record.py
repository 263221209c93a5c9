"""lab.json: what a lab started, for whoever has to end it; and the pointers in /run by which labs are found."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_ft.lab.errors import LabError
from slurm_ft.lab.processes import Started
from slurm_ft.lab.spec import LabSpec, Layout

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA = 1

# Only root can write here, so nobody can make `slurm-ft lab down --all` end a process of their choice.
REGISTRY = Path("/run/slurm_ft/labs")


@dataclass(frozen=True, slots=True)
class Record:
    """The content of lab.json."""

    spec: LabSpec
    layout: Layout
    boot_id: str
    processes: tuple[Started, ...]

    @property
    def alive(self) -> tuple[Started, ...]:
        """The recorded processes that still run. Start times count from boot, so none of another boot does."""
        return tuple(p for p in self.processes if p.alive) if self.boot_id == boot_id() else ()


def boot_id() -> str:
    """Names the running kernel's boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def write_record(spec: LabSpec, layout: Layout, processes: Iterable[Started]) -> None:
    """Replace lab.json at once, and keep the pointer to it."""
    plain = {
        "schema": SCHEMA,
        "spec": spec.to_json(),
        "layout": {**asdict(layout), "base": str(layout.base)},
        "boot_id": boot_id(),
        "processes": [asdict(process) for process in processes],
    }
    new = layout.record.with_suffix(".new")
    new.write_text(json.dumps(plain, indent=2) + "\n")
    new.replace(layout.record)
    _point_to(layout)


def read_record(base: Path) -> Record:
    """Read lab.json of a directory."""
    path = base / "lab.json"
    try:
        if path.stat().st_uid != os.geteuid():
            raise LabError(f"{path} belongs to another account", "Use the account that started the lab.")
        found = _parse(json.loads(path.read_text()))
        if found.layout.base != base.resolve():
            raise ValueError(f"it describes a lab in {found.layout.base}")
    except FileNotFoundError as error:
        raise LabError(
            f"there is no local cluster in {base}: no lab.json", "`slurm-ft lab status` lists them."
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"cannot read {path}: {error}", "End its processes by hand and remove the directory.") from error
    return found


def known_bases() -> list[Path]:
    """Directories of all labs on this machine. Pointers to removed directories are dropped."""
    bases: list[Path] = []
    for pointer in sorted(REGISTRY.glob("*")):
        with suppress(OSError):  # another process may end the lab meanwhile
            if (pointer / "lab.json").exists():
                bases.append(pointer.readlink())
            else:
                pointer.unlink()
    return bases


def forget(layout: Layout) -> None:
    """The lab has ended: nothing is left to be found."""
    layout.record.unlink(missing_ok=True)
    (REGISTRY / layout.lab_id).unlink(missing_ok=True)


def _point_to(layout: Layout) -> None:
    REGISTRY.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (REGISTRY / layout.lab_id).symlink_to(layout.base)


def _parse(plain: dict[str, Any]) -> Record:
    if plain["schema"] != SCHEMA:
        raise ValueError(f"schema {plain['schema']}, this version reads {SCHEMA}")
    layout = dict(plain["layout"])
    layout["base"], layout["node_ports"] = Path(layout["base"]), tuple(layout["node_ports"])
    return Record(
        spec=LabSpec.from_json(plain["spec"]),
        layout=Layout(**layout),
        boot_id=plain["boot_id"],
        processes=tuple(Started(**process) for process in plain["processes"]),
    )

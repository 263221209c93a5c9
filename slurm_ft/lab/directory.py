"""Writes a lab's directory: configuration, key, devices, hooks, and places to write for each account."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_ft.lab import texts
from slurm_ft.lab.errors import LabError
from slurm_ft.lab.resources import command_script, resource
from slurm_ft.lab.spec import BACKUP_ADDRESS, BACKUP_HOST, HOOKS, MAX_BASE_LENGTH, LabSpec, Layout

if TYPE_CHECKING:
    from pwd import struct_passwd

    from slurm_ft.lab.installation import Installation

PREFIX = "slurm_ft-lab-"


def make_base(wanted: Path | None) -> Path:
    """The lab's directory: a new one below /tmp, or the wanted one, which must be new or empty."""
    if wanted is None:
        base = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
    else:
        base = _checked(wanted.resolve())
        base.mkdir(parents=True, exist_ok=True)
    base.chmod(0o755)  # jobs of the ordinary user read below it
    return base


def populate(
    spec: LabSpec, layout: Layout, slurm: Installation, user: struct_passwd, slurm_user: struct_passwd
) -> None:
    """Create everything that the daemons read. May be called again with other ports."""
    _directories(layout, user, slurm_user)
    _write(layout.slurm_conf, texts.slurm_conf_text(spec, layout))
    _write(layout.etc / "gres.conf", texts.gres_conf_text(spec, layout))
    if (cgroup := texts.cgroup_conf_text(spec, slurm.version)) is not None:
        _write(layout.etc / "cgroup.conf", cgroup)
    _write(layout.config, texts.slurm_ft_config_text(spec, layout, slurm.bin))
    _write(layout.etc / "hosts", f"{Path('/etc/hosts').read_text()}\n{BACKUP_ADDRESS} {BACKUP_HOST}\n")
    _munge_key(layout.etc / "munge.key")
    _devices(layout.base / "dev", spec.gpus_per_node)
    _hook_wrappers(spec, layout)


def remove(base: Path) -> None:
    """Delete the directory with everything in it."""
    shutil.rmtree(base, ignore_errors=True)


def _checked(base: Path) -> Path:
    if len(str(base)) > MAX_BASE_LENGTH:
        raise LabError(
            f"the directory name {base} is too long for Unix sockets below it",
            f"Choose one of at most {MAX_BASE_LENGTH} characters.",
        )
    if base.exists() and (not base.is_dir() or any(base.iterdir())):
        raise LabError(
            f"{base} is not an empty directory", "Choose another one, or end the lab in it: slurm-ft lab down."
        )
    return base


def _directories(layout: Layout, user: struct_passwd, slurm_user: struct_passwd) -> None:
    spool = (f"spool/{node}" for node in layout.node_names)
    for name in ("etc", "etc/hooks", "run", "spool", "dev", "home", *spool):
        _directory(layout.base / name)
    for name in (
        "log",
        "run/slurm_ft",
        "run/slurmctld",
        "run/slurmctld_backup",
        "state",
        "state/slurmctld",
        "state/slurm_ft",
    ):
        _directory(layout.base / name, slurm_user)
    _directory(layout.base / "home" / user.pw_name, user)
    _directory(layout.shared)
    layout.shared.chmod(0o1777)
    (layout.base / "state" / "slurm_ft").chmod(0o750)  # as an installation has it
    log = layout.log / "slurm_ft.log"  # the nodes' root and the controller's SlurmUser both append
    log.touch()
    log.chmod(0o640)
    os.chown(log, slurm_user.pw_uid, slurm_user.pw_gid)


def _directory(path: Path, owner: struct_passwd | None = None) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o755)
    if owner is not None:
        os.chown(path, owner.pw_uid, owner.pw_gid)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.write_text(text)
    path.chmod(mode)  # whatever the umask says


def _munge_key(path: Path) -> None:
    if not path.exists():
        path.touch(mode=0o600)
        path.write_bytes(os.urandom(1024))


def _devices(directory: Path, count: int) -> None:
    for gpu in range(count):
        path = directory / f"gpu{gpu}"
        if path.exists():
            continue
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))  # /dev/null's twin: slurmd wants a device
        except OSError as error:
            raise LabError(
                f"cannot make the device file {path}: {error}",
                "The container needs the capability MKNOD; or ask for no GPUs (--gpus 0).",
            ) from error


def _hook_wrappers(spec: LabSpec, layout: Layout) -> None:
    _write(command(layout), command_script(), 0o755)
    for name, (_, file) in HOOKS.items():
        script = spec.hooks[name] if name in spec.hooks else resource(file)
        if script is not None:
            text = texts.hook_wrapper_text(layout, command(layout), script.absolute())
            _write(texts.hook_wrapper(layout, name), text, 0o755)


def command(layout: Layout) -> Path:
    """The `slurm-ft` that the hooks call, and every account of the lab may start."""
    return layout.etc / "slurm-ft"

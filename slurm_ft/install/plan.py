"""What has to be there for each role. Pure: what the machine is like comes in as a Site."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_ft.config import DEFAULT_CONFIG, Config
from slurm_ft.install import slurm_conf
from slurm_ft.install.change import Change, Directory, File, Lines, Link, Role

DEFAULT_PREFIX = Path("/opt/slurm_ft")  # what the shipped files name
DEFAULT_LOG = Config().state_dir / "slurm_ft.log"
COMMAND = Path("/usr/local/bin/slurm-ft")
UNITS = Path("/etc/systemd/system")
LOGROTATE = Path("/etc/logrotate.d/slurm_ft")
# Unit -> the target that starts it.
UNITS_OF: Mapping[Role, Mapping[str, str]] = {
    Role.CONTROLLER: {"slurm-ft-reconcile.service": "", "slurm-ft-reconcile.timer": "timers.target"},
    Role.NODE: {
        "slurm-ft-watch.service": "multi-user.target",
        "slurm-ft-alert.service": "",
        "slurm-ft-alert.timer": "timers.target",
    },
    Role.LOGIN: {},
}
PLUGINS = ("job_submit.lua", "cli_filter.lua")


@dataclass(frozen=True, slots=True)
class Site:
    """What a plan needs to know of the machine. `shipped` holds the texts of the files that come with slurm_ft, by
    their path among them (`contrib/slurm_ft.yaml`)."""

    prefix: Path  # the virtual environment
    vendor: str  # the library that CHECKPOINT_VENDOR names, relative to prefix/share/slurm_ft
    shipped: Mapping[str, str]
    slurm_user: str
    slurm_group: str
    slurm_bin: Path
    slurm_conf: Path | None  # None: Slurm finds it by itself
    slurm_conf_file: Path
    slurm_conf_text: str | None  # None: there is none on this machine
    state_dir: Path
    log_file: Path | None
    systemd: bool
    logrotate: bool


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the admin asked for beyond the roles."""

    edit_slurm_conf: bool = False
    plugins: bool = False


def plan(
    site: Site, roles: Collection[Role], wishes: Wishes = Wishes(), installed: Collection[Role] = ()
) -> tuple[Change, ...]:
    """Everything that these roles need, in the order in which it is made; the machine has the roles `installed`."""
    return (
        *_everywhere(site),
        *(_state(site, {*roles, *installed}) if not set(roles).isdisjoint((Role.CONTROLLER, Role.NODE)) else ()),
        *(_units(site, roles) if site.systemd else ()),
        *(_plugins(site) if wishes.plugins else ()),
        *(_slurm_conf(site, wishes) if wishes.edit_slurm_conf else ()),
    )


def units(roles: Collection[Role]) -> tuple[str, ...]:
    """The units that run, or wait for their time, once the plan is carried out."""
    return tuple(name for role in Role if role in roles for name, target in UNITS_OF[role].items() if target)


def _everywhere(site: Site) -> Iterable[Change]:
    yield Directory(DEFAULT_CONFIG.parent)
    yield File(DEFAULT_CONFIG, _config(site), theirs=True)
    yield Link(COMMAND, str(site.prefix / "bin" / "slurm-ft"))
    yield Link(site.prefix / "share" / "slurm_ft" / "vendor", site.vendor)


def _config(site: Site) -> str:
    text = site.shipped["contrib/slurm_ft.yaml"]
    text = re.sub(r"^slurm_bin: .*$", f"slurm_bin: {site.slurm_bin}", text, flags=re.MULTILINE)
    if site.slurm_conf is not None:
        text = re.sub(r"^slurm_conf: .*$", f"slurm_conf: {site.slurm_conf}", text, flags=re.MULTILINE)
    return text


def _state(site: Site, roles: Collection[Role]) -> Iterable[Change]:
    """On the controller SlurmUser writes there; on a node only root's hooks do."""
    owner, group = (site.slurm_user, site.slurm_group) if Role.CONTROLLER in roles else ("root", "root")
    yield Directory(site.state_dir, 0o750, owner, history=True)
    if site.log_file is not None:
        yield File(site.log_file, "", 0o640, owner, theirs=True)
    if site.logrotate:
        yield File(LOGROTATE, _logrotate(site, f"{owner} {group}"))


def _logrotate(site: Site, owner: str) -> str:
    text = site.shipped["contrib/slurm_ft.logrotate"].replace("slurm slurm", owner)
    log = site.log_file or site.state_dir / DEFAULT_LOG.name
    if not log.is_relative_to(site.state_dir):
        text = re.sub(r"^ *(#.*links.*|su .*)\n", "", text, flags=re.MULTILINE)
    return text.replace(str(DEFAULT_LOG), str(log))


def _units(site: Site, roles: Collection[Role]) -> Iterable[Change]:
    for role in Role:
        for name, target in UNITS_OF[role].items() if role in roles else ():
            text = site.shipped[f"contrib/{name}"].replace(f"{DEFAULT_PREFIX}/", f"{site.prefix}/")
            yield File(UNITS / name, text.replace(f"{DEFAULT_LOG.parent}/", f"{site.state_dir}/"))
            if target:
                yield Link(UNITS / f"{target}.wants" / name, str(UNITS / name))


def _plugins(site: Site) -> Iterable[Change]:
    for name in PLUGINS:
        yield File(site.slurm_conf_file.parent / name, site.shipped[f"plugins/{name}"], theirs=True)


def _slurm_conf(site: Site, wishes: Wishes) -> Iterable[Change]:
    if site.slurm_conf_text is not None:
        settings = slurm_conf.wanted(site.prefix, plugins=wishes.plugins)
        yield Lines(site.slurm_conf_file, slurm_conf.missing(site.slurm_conf_text, settings))

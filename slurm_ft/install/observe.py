"""Look at the machine that slurm_ft is to be installed on. Nothing here changes anything."""

from __future__ import annotations

import grp
import os
import pwd
import sys
from dataclasses import dataclass
from pathlib import Path

from slurm_ft import config
from slurm_ft.config import DEFAULT_CONFIG, Config
from slurm_ft.errors import SlurmFtError
from slurm_ft.install import slurm_conf, trust
from slurm_ft.install.change import Place
from slurm_ft.install.plan import DEFAULT_PREFIX, PLUGINS, UNITS_OF, Site
from slurm_ft.lab.resources import resources_dir
from slurm_ft.lab.spec import HOOKS

SLURM_BINS = tuple(map(Path, ("/usr/bin", "/usr/local/bin", "/opt/slurm/bin")))
SLURM_CONFS = tuple(map(Path, ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/usr/local/etc/slurm.conf")))
BOOTED = Path("/run/systemd/system")


@dataclass(frozen=True, slots=True)
class Named:
    """What the admin named on the command line, in place of what would be found."""

    prefix: Path | None = None
    slurm_bin: Path | None = None
    slurm_conf: Path | None = None
    slurm_user: str | None = None


def observe(place: Place, named: Named) -> Site:
    """Raises SlurmFtError: when slurm_ft is not installed where it should be, or can be changed by others."""
    prefix = named.prefix or stable_name(Path(sys.prefix), DEFAULT_PREFIX)
    _check_prefix(place, prefix)
    settings = _settings(place)
    conf = named.slurm_conf or _path_of_variable("SLURM_CONF") or settings.slurm_conf
    conf_file = conf or next((path for path in SLURM_CONFS if place.at(path).is_file()), SLURM_CONFS[0])
    text = _text_of(place.at(conf_file))
    slurm_user = named.slurm_user or _slurm_user(text)
    return Site(
        prefix=prefix,
        vendor=_vendor(place, prefix),
        shipped=_shipped(),
        slurm_user=slurm_user,
        slurm_group=_group_of(slurm_user),
        slurm_bin=named.slurm_bin or _slurm_bin(settings),
        slurm_conf=conf,
        slurm_conf_file=conf_file,
        slurm_conf_text=text,
        state_dir=settings.state_dir,
        log_file=settings.log_file,
        systemd=place.staged or Path("/usr/bin/systemctl").exists(),
        logrotate=place.staged or Path("/etc/logrotate.d").is_dir(),
    )


def stable_name(prefix: Path, link: Path) -> Path:
    """`link` where it leads to this virtual environment, so that an upgrade can change it at once; else `prefix`."""
    return link if link.is_symlink() and link.resolve() == prefix.resolve() else prefix


def _check_prefix(place: Place, prefix: Path) -> None:
    share = place.at(prefix) / "share" / "slurm_ft"
    needed = [place.at(prefix) / "bin" / "slurm-ft", *(share / file for _, file in HOOKS.values())]
    absent = next((path for path in needed if not path.is_file()), None)
    if absent is not None:
        fix = (
            f"Install it there: python3 -m venv {prefix}; {prefix}/bin/pip install slurm_ft (see docs/installation.md)"
        )
        raise SlurmFtError(f"slurm_ft is not installed in {prefix}: there is no {absent}", fix)
    if place.staged:
        return
    package = next(prefix.glob("lib/python3*/site-packages/slurm_ft"), prefix)
    why = next((why for path in (*needed, package, prefix / "bin" / "python3") if (why := trust.problem(path))), "")
    if why := why or trust.problem_below(package):
        raise SlurmFtError(f"root must not run this slurm_ft: {why}", "Install it as root, into a directory of root's")


def _settings(place: Place) -> Config:
    """Of a configuration that is there already; the defaults otherwise. Raises ConfigError."""
    text = _text_of(place.at(DEFAULT_CONFIG))
    return Config() if text is None else config.parse(text, str(DEFAULT_CONFIG))


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SlurmFtError(f"{path}: {error.strerror}", "Run as root") from error


def _path_of_variable(name: str) -> Path | None:
    value = os.environ.get(name)
    return Path(value).absolute() if value else None


def _vendor(place: Place, prefix: Path) -> str:
    """The checkpoint library as a path that starts in share/slurm_ft, so that a copy of the environment stays whole."""
    found = sorted(place.at(prefix).glob("lib/python3*/site-packages/slurm_ft/vendor"))
    if not found:
        raise SlurmFtError(f"slurm_ft is not installed in {prefix}: it has no vendor folder", "Install it with pip")
    return f"../../{found[-1].relative_to(place.at(prefix))}"


def _shipped() -> dict[str, str]:
    units = (f"contrib/{name}" for of_role in UNITS_OF.values() for name in of_role)
    names = ("contrib/slurm_ft.yaml", "contrib/slurm_ft.logrotate", *units, *(f"plugins/{name}" for name in PLUGINS))
    return {name: (resources_dir() / name).read_text(encoding="utf-8") for name in names}


def _slurm_user(text: str | None) -> str:
    """What slurm.conf says (root, if it says nothing); without one Debian's account, if there is one."""
    if text is not None:
        return slurm_conf.read(text).get("slurmuser", "root").partition("(")[0]
    return "slurm" if any(account.pw_name == "slurm" for account in pwd.getpwall()) else "root"


def _group_of(account: str) -> str:
    """Its primary group; the account may exist only on the machine that a staging directory is for."""
    try:
        return grp.getgrgid(pwd.getpwnam(account).pw_gid).gr_name
    except KeyError:
        return account


def _slurm_bin(settings: Config) -> Path:
    if (settings.slurm_bin / "scontrol").exists():
        return settings.slurm_bin
    return next((path for path in SLURM_BINS if (path / "scontrol").exists()), settings.slurm_bin)

"""The site's configuration: one YAML file, checked on load, every error naming file, line, key and valid values.

The file is found through SLURM_FT_CONFIG, else `/etc/slurm/slurm_ft.yaml`. A missing default file means the packaged
defaults, and these only observe.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import yaml

from slurm_ft.errors import ConfigError

CONFIG_VARIABLE = "SLURM_FT_CONFIG"
SHELL_KEYS = ("opt_in", "slurm_bin", "slurm_conf")  # epilog/slurmctld_epilog reads these without Python
DEFAULT_CONFIG = Path("/etc/slurm/slurm_ft.yaml")


class Mode(str, Enum):
    """`observe` records every decision it would take and changes nothing; `act` acts."""

    OBSERVE = "observe"
    ACT = "act"


class OptIn(str, Enum):
    """Which jobs fail over: those with our tag in --comment, every requeueable one, or all (the same, said aloud)."""

    TAG = "tag"
    REQUEUE = "requeue"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Config:
    """Everything a site may set. Durations are seconds."""

    mode: Mode = Mode.OBSERVE
    opt_in: OptIn = OptIn.TAG
    limit: int = 3  # failovers of one job
    limit_max: int = 3  # what a job may raise its own limit to
    node_epilog_wait: float = 60.0  # how long the decision waits for the node epilogs
    command_timeout: float = 10.0  # of one Slurm command
    kernel_log: Path = Path("/dev/kmsg")
    kernel_log_grace: float = 300.0  # a line this long after a known end still belongs to the attempt
    gpu_inventory: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    state_dir: Path = Path("/var/lib/slurm_ft")
    log_file: Path | None = None  # None: syslog
    slurm_bin: Path = Path("/usr/bin")
    slurm_conf: Path | None = None  # None: where Slurm itself looks


def load() -> Config:
    """Read the site's configuration. Raises ConfigError."""
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named) if named else DEFAULT_CONFIG
    try:
        with path.open(encoding="utf-8") as file:
            _refuse_writable_by_others(path, os.fstat(file.fileno()))
            text = file.read()
    except FileNotFoundError:
        if named:
            raise ConfigError(f"{path}: no such file, named by {CONFIG_VARIABLE}", "Create it or unset it") from None
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", "Mend its permissions or encoding") from error
    return parse(text, str(path))


def _refuse_writable_by_others(path: Path, status: os.stat_result) -> None:
    """The hooks run as root on the word of this file."""
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"{path}: writable by its group or by everybody", f"chmod go-w {path}")


def parse(text: str, name: str = DEFAULT_CONFIG.name) -> Config:
    """Turn the YAML `text` of the file `name` into a Config. Raises ConfigError."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not YAML: {error}", "Mend the syntax") from error
    if root is None:
        return Config()
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise ConfigError(f"{name}:1: expected `key: value` lines", f"Valid keys: {_valid_keys()}")
    config = Config(**dict(_read_entry(key, value, name) for key, value in root.value))
    if config.limit > config.limit_max:
        raise ConfigError(
            f"{name}: limit {config.limit} is above limit_max {config.limit_max}", "Raise limit_max or lower limit"
        )
    return config


def _read_entry(key: yaml.Node, value: yaml.Node, name: str) -> tuple[str, Any]:
    where = f"{name}:{key.start_mark.line + 1}"
    reader = READERS.get(str(key.value))
    if key.value in SHELL_KEYS and not _plain_enough(key, value):
        raise ConfigError(f"{where}: {key.value}: the shell hooks read it too", "Write it as `key: value` on one line")
    if reader is None:
        raise ConfigError(f"{where}: unknown key {key.value!r}", f"Valid keys: {_valid_keys()}")
    try:
        return str(key.value), reader(_plain(value))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {key.value}: {error}", "See the comments in the packaged slurm_ft.yaml") from error


def _plain_enough(key: yaml.Node, value: yaml.Node) -> bool:
    """Whether the shell part of slurmctld_epilog reads the same value as YAML does."""
    same_line = key.start_mark.column == 0 and key.start_mark.line == value.end_mark.line
    return same_line and isinstance(value, yaml.ScalarNode) and not re.search(r"[\s\"'\\#]", str(value.value))


def _plain(node: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    finally:
        loader.dispose()


E = TypeVar("E", bound=Enum)


def _one_of(kind: type[E]) -> Callable[[object], E]:
    def read(value: object) -> E:
        try:
            return kind(value)
        except ValueError:
            valid = ", ".join(str(member.value) for member in kind)
            raise ValueError(f"{value!r} is not one of: {valid}") from None

    return read


def _whole(low: int, high: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{value!r} is not a whole number from {low} to {high}")
        return value

    return read


def _seconds(low: float, high: float) -> Callable[[object], float]:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise ValueError(f"{value!r} is not a number of seconds from {low:g} to {high:g}")
        return float(value)

    return read


def _path(value: object) -> Path:
    if not isinstance(value, str) or not value.startswith("/"):
        raise ValueError(f"{value!r} is not an absolute path")
    return Path(value)


def _optional_path(value: object) -> Path | None:
    return None if value is None else _path(value)


def _inventory(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise ValueError("expected a mapping of node name to a list of PCI addresses, in the order of gres.conf")
    for node, gpus in value.items():
        if not isinstance(gpus, list) or not all(isinstance(gpu, str) for gpu in gpus):
            raise ValueError(f"{node}: expected a list of PCI addresses in quotes, such as ['0000:3b:00.0']")
    return {str(node): tuple(gpus) for node, gpus in value.items()}


READERS: Mapping[str, Callable[[object], Any]] = {
    "mode": _one_of(Mode),
    "opt_in": _one_of(OptIn),
    "limit": _whole(0, 100),
    "limit_max": _whole(0, 100),
    "node_epilog_wait": _seconds(0, 3600),
    "command_timeout": _seconds(0.1, 300),
    "kernel_log": _path,
    "kernel_log_grace": _seconds(0, 86400),
    "gpu_inventory": _inventory,
    "state_dir": _path,
    "log_file": _optional_path,
    "slurm_bin": _path,
    "slurm_conf": _optional_path,
}


def _valid_keys() -> str:
    return ", ".join(entry.name for entry in fields(Config))

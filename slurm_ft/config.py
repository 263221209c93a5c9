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

from slurm_ft.alert_channels import Channel, read_channels, read_destinations
from slurm_ft.errors import ConfigError

CONFIG_VARIABLE = "SLURM_FT_CONFIG"
# epilog/slurmctld_epilog and prolog/node_prolog read these without Python
SHELL_KEYS = ("opt_in", "slurm_bin", "slurm_conf", "prolog_gate")
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


class Backend(str, Enum):
    """How Slurm is asked: by its commands, by pyslurm, or by pyslurm wherever it fits the cluster's release."""

    CLI = "cli"
    PYSLURM = "pyslurm"
    AUTO = "auto"


class FailedStep(str, Enum):
    """What a failed step means for a job whose batch script ended `0:0`: a note, or the same as a failed script."""

    REPORT = "report"
    FAILOVER = "failover"


class Gate(str, Enum):
    """Whether the node Prolog lets jobs start on a GPU that needs a repair: `observe` says so, `act` refuses."""

    OFF = "off"
    OBSERVE = "observe"
    ACT = "act"


class Residency(str, Enum):
    """`strict`: alerts go only to this machine and to the destinations that the site names."""

    OFF = "off"
    STRICT = "strict"


# What `rules_off` may name: the rules of failover/policy.py that act, and of classify/rules.py that drain.
SWITCHABLE = (
    "hardware_fault", "repeated_fault", "application_fault", "ambiguous_code", "secondary_only",
    "requeued_by_slurm", "expedited", "refused_by_gate",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Config:
    """Everything a site may set. Durations are seconds."""

    mode: Mode = Mode.OBSERVE
    opt_in: OptIn = OptIn.TAG
    backend: Backend = Backend.CLI
    limit: int = 3  # failovers of one job
    limit_max: int = 3  # what a job may raise its own limit to
    failed_step: FailedStep = FailedStep.REPORT
    evidence_in_log: bool = True  # whether a failed job's own log is told of what it ended and why it starts again
    partitions: tuple[str, ...] = ()  # whose jobs fail over; none named: all
    rules_off: frozenset[str] = frozenset()  # rules that may not act, see SWITCHABLE
    backoff: tuple[float, ...] = (0.0, 30.0, 120.0)  # before the next attempt, by the number of the failover
    progress_stop: int = 3  # failovers in a row without a newer checkpoint that end a job; 0: never
    breaker_nodes: int = 32  # drained by us within the window: more stop all failovers; 0: no such bound
    breaker_percent: int = 10  # of the cluster's nodes; the lower of the two bounds counts; 0: no such bound
    breaker_window: float = 3600.0
    lemon_window: float = 7 * 86400.0  # a node that fails again within it is a repeat offender
    node_epilog_wait: float = 60.0  # how long the decision waits for the node epilogs
    node_reuse_delay: float = 3.0  # between two attempts when the job may return to one of its nodes
    command_timeout: float = 10.0  # of one Slurm command
    kernel_log: Path = Path("/dev/kmsg")
    kernel_log_grace: float = 300.0  # a line this long after a known end still belongs to the attempt
    watch_grace: float = 60.0  # how long a job may outlive a fatal fault of its GPU before `slurm-ft watch` ends it
    gpu_inventory: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prolog_gate: Gate = Gate.OFF
    nvml: bool = True  # ask NVML about a failed job's GPUs, where nvidia-ml-py is installed
    nvml_timeout: float = 3.0  # of one look at the GPUs
    nvml_events: bool = False  # have the watcher wait for NVML's events, which keeps every GPU of the node open
    dcgm: str = "off"  # off, dcgmi, or the URL of a dcgm-exporter on this node
    dcgm_timeout: float = 3.0  # of all that is asked of DCGM after an attempt
    verdict_overrides: Path | None = None  # the site's own reading of codes, see override_file.py
    state_dir: Path = Path("/var/lib/slurm_ft")
    log_file: Path | None = None  # None: syslog
    alert_channels: tuple[Channel, ...] = ()
    alert_restarts: int = 3  # of one job within alert_window are worth an alert
    alert_window: float = 3600.0
    alert_cool_down: float = 3600.0  # before the same is told again
    alert_destinations: tuple[str, ...] = ()  # the only ones allowed; none named: all, unless residency is strict
    residency: Residency = Residency.OFF
    metrics_file: Path | None = None  # for node_exporter, written by `slurm-ft reconcile`
    node_metrics_file: Path | None = None  # the same on a compute node, written by `slurm-ft watch`
    slurm_bin: Path = Path("/usr/bin")
    slurm_conf: Path | None = None  # None: where Slurm itself looks


def load() -> Config:
    """Read the site's configuration. Raises ConfigError."""
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named) if named else DEFAULT_CONFIG
    try:
        with path.open(encoding="utf-8", newline="") as file:  # line ends as they are: the shell part sees them too
            refuse_writable_by_others(path, file.fileno())
            text = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        if named:
            raise ConfigError(f"{path}: no such file, named by {CONFIG_VARIABLE}", "Create it or unset it") from None
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", "Mend its permissions or encoding") from error
    return parse(text, str(path))


def refuse_writable_by_others(path: Path, descriptor: int) -> None:
    """The hooks run as root or SlurmUser on the word of this file. Raises ConfigError."""
    status = os.fstat(descriptor)
    if status.st_uid not in (0, os.geteuid()):
        reader = "root" if os.geteuid() == 0 else f"user id {os.geteuid()}"
        raise ConfigError(f"{path}: read by {reader}, but owned by user id {status.st_uid}", f"chown root {path}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"{path}: writable by its group or by everybody", f"chmod go-w {path}")


SIZE_LIMIT = 262144  # characters; the hooks wait for this file


def parse(text: str, name: str = DEFAULT_CONFIG.name) -> Config:
    """Turn the YAML `text` of the file `name` into a Config. Raises ConfigError."""
    if len(text) > SIZE_LIMIT:
        raise ConfigError(f"{name}: more than {SIZE_LIMIT} characters", "Is it the right file?")
    try:
        root = yaml.compose(text, Loader=NoAliases)
    except RecursionError:
        raise ConfigError(f"{name}: nested too deeply", "Valid entries are `key: value` lines") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not YAML: {_in_one_line(error)}", "Mend the syntax") from error
    if root is None or root.tag == "tag:yaml.org,2002:null":
        return Config()
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise ConfigError(f"{name}:1: expected `key: value` lines", f"Valid keys: {_valid_keys()}")
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key, value in root.value:
        word, line = str(key.value), key.start_mark.line + 1
        if word in lines:
            raise ConfigError(f"{name}:{line}: {word}: given before, in line {lines[word]}", "Keep one of them")
        lines[word] = line
        values[word] = _read_entry(word, value, f"{name}:{line}")
    _refuse_what_the_shell_misreads(text, root, lines, name)
    config = Config(**values)
    if config.limit > config.limit_max:
        line = lines.get("limit") or lines["limit_max"]
        what = f"{name}:{line}: limit: {config.limit} is above limit_max {config.limit_max}"
        raise ConfigError(what, "Raise limit_max or lower limit")
    return config


class NoAliases(yaml.SafeLoader):
    """A few lines of aliases can stand for gigabytes, in a value or in the message that quotes it."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Called for each node of the text."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not allowed", mark)
        return super().compose_node(parent, index)


def _read_entry(key: str, value: yaml.Node, where: str) -> Any:
    reader = READERS.get(key)
    if reader is None:
        raise ConfigError(f"{where}: unknown key {key!r}", f"Valid keys: {_valid_keys()}")
    try:
        return reader(_plain(value))
    except (ValueError, TypeError, yaml.YAMLError) as error:
        what = f"{where}: {key}: {_in_one_line(error)}"
        raise ConfigError(what, "See the comments in the packaged slurm_ft.yaml") from error


def _in_one_line(error: Exception) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    return f"{error.problem} in line {error.problem_mark.line + 1}"


def _refuse_what_the_shell_misreads(text: str, root: yaml.MappingNode, lines: Mapping[str, int], name: str) -> None:
    """The shell part of slurmctld_epilog knows less YAML than we do; the two must never differ."""
    scalars = {str(key.value): value.value for key, value in root.value if isinstance(value, yaml.ScalarNode)}
    for key in SHELL_KEYS:
        line, seen = _shell_reads(text, key)
        if seen != scalars.get(key):
            where = f"{name}:{lines.get(key, line)}: {key}"
            fix = "Write it as a plain `key: value` line that starts with the key and ends as Unix lines do"
            raise ConfigError(f"{where}: the shell hooks read it too, and would read {seen or 'nothing'!r}", fix)


def _shell_reads(text: str, key: str) -> tuple[int, str | None]:
    """The last line and the value that the loop in slurmctld_epilog takes for `key`; None if it finds none."""
    found: tuple[int, str | None] = (1, None)
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(f"{key}:"):
            word = line[len(key) + 1 :].replace("\t", " ").strip(" ").split(" ")[0]
            found = number, re.sub(r"^[\"']|[\"']\Z", "", "" if word.startswith("#") else word)
    return found


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
            raise ValueError(f"{value!r} is not a number of seconds from {low:.10g} to {high:.10g}")
        return float(value)

    return read


def _path(value: object) -> Path:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise ValueError(f"{value!r} is not an absolute path")
    return Path(value)


def _optional_path(value: object) -> Path | None:
    return None if value is None else _path(value)


def _switch(value: object) -> bool:
    """YAML reads a bare on or off as a truth value."""
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is not one of: on, off")
    return value


def _gate(value: object) -> Gate:
    """YAML reads a bare off as a truth value."""
    return Gate.OFF if value is False else _one_of(Gate)(value)


def _residency(value: object) -> Residency:
    """YAML reads a bare off as a truth value."""
    return Residency.OFF if value is False else _one_of(Residency)(value)


def _dcgm(value: object) -> str:
    if value is False or value == "off":
        return "off"
    if value == "dcgmi":
        return value
    if not isinstance(value, str) or not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]_-]+/[!-~]*", value):
        raise ValueError(f"{value!r} is not one of: off, dcgmi, http://HOST:PORT/metrics")
    return value


def _inventory(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise ValueError("expected a mapping of node name to a list of PCI addresses, in the order of gres.conf")
    for node, gpus in value.items():
        if not isinstance(gpus, list) or not all(isinstance(gpu, str) for gpu in gpus):
            raise ValueError(f"{node}: expected a list of PCI addresses in quotes, such as ['0000:3b:00.0']")
    return {str(node): tuple(gpus) for node, gpus in value.items()}


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f"{value!r} is not a list of names, such as [gpu, spot]")
    return tuple(value)


def _rules(value: object) -> frozenset[str]:
    names = frozenset(_names(value))
    if unknown := sorted(names.difference(SWITCHABLE)):
        raise ValueError(f"{', '.join(unknown)}: not among the rules that can be switched off: {', '.join(SWITCHABLE)}")
    return names


def _pauses(value: object) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{value!r} is not a list of seconds, such as [0, 30, 120]")
    return tuple(map(_seconds(0, 86400), value))


READERS: Mapping[str, Callable[[object], Any]] = {
    "mode": _one_of(Mode),
    "opt_in": _one_of(OptIn),
    "backend": _one_of(Backend),
    "limit": _whole(0, 100),
    "limit_max": _whole(0, 100),
    "failed_step": _one_of(FailedStep),
    "evidence_in_log": _switch,
    "partitions": _names,
    "rules_off": _rules,
    "backoff": _pauses,
    "progress_stop": _whole(0, 100),
    "breaker_nodes": _whole(0, 100000),
    "breaker_percent": _whole(0, 100),
    "breaker_window": _seconds(60, 30 * 86400),
    "lemon_window": _seconds(3600, 365 * 86400),
    "node_epilog_wait": _seconds(0, 3600),
    "node_reuse_delay": _seconds(2, 600),
    "command_timeout": _seconds(0.1, 300),
    "kernel_log": _path,
    "kernel_log_grace": _seconds(0, 86400),
    "watch_grace": _seconds(0, 86400),
    "gpu_inventory": _inventory,
    "prolog_gate": _gate,
    "nvml": _switch,
    "nvml_timeout": _seconds(0.1, 20),
    "nvml_events": _switch,
    "dcgm": _dcgm,
    "dcgm_timeout": _seconds(0.1, 20),
    "verdict_overrides": _optional_path,
    "state_dir": _path,
    "log_file": _optional_path,
    "alert_channels": read_channels,
    "alert_restarts": _whole(1, 100),
    "alert_window": _seconds(60, 30 * 86400),
    "alert_cool_down": _seconds(0, 7 * 86400),
    "alert_destinations": read_destinations,
    "residency": _residency,
    "metrics_file": _optional_path,
    "node_metrics_file": _optional_path,
    "slurm_bin": _path,
    "slurm_conf": _optional_path,
}


def _valid_keys() -> str:
    return ", ".join(entry.name for entry in fields(Config))

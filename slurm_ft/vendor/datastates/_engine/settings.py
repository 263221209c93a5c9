"""The engine's settings, as a training script passes them in a dictionary.

The first three names are the vendor API's. An unknown name is an error that lists the valid ones: a misspelt limit must
not be ignored silently.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from .errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

AUTO = "auto"

# Settings of DataStates-LLM that mean nothing here; scripts written for it pass them.
WITHOUT_EFFECT = frozenset({"fast_cache_init"})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to save. Sizes in GiB and times in seconds where a script sets them."""

    host_cache_size: float | None = None  # GiB of host memory per rank: a ceiling; None: from the memory there is
    parser_threads: int = 2  # threads that copy, hash and write
    pin_host_cache: bool = True  # page-locked host memory where there is a GPU
    trainer: object = None
    save_steps: int | Literal["auto"] | None = None  # None: the integration's own default
    save_seconds: float | None = None
    max_overhead: float = 1.0  # percent of the training time that `save_steps: auto` may cost
    keep_last: int = 2  # 0: all
    keep_every: int | None = None  # steps: multiples of it are never deleted
    back_pressure: Literal["skip", "wait"] = "skip"  # what to do while the last save is still being written
    strict_resume: bool = False  # fail instead of starting from scratch
    max_failures: int = 3  # in a row, then saving is disabled
    copy: Literal["auto", "lazy", "eager"] = "auto"
    debug_hash: bool = False  # hash at capture and compare with what was written
    direct_io: bool = True  # O_DIRECT where the file system has it
    validator_socket: str | None = None
    fence_timeout: float = 120.0
    commit_timeout: float = 600.0
    drain_timeout: float = 300.0
    term_grace: float = 25.0  # between SIGTERM and SIGKILL; Slurm's KillWait is 30 s


def parse(config: Mapping[str, object]) -> Settings:
    """Return the settings that a script's dictionary means. Raises SettingsError."""
    valid = {field.name for field in fields(Settings)}
    values = {key: value for key, value in config.items() if key not in WITHOUT_EFFECT}
    unknown = sorted(set(values) - valid, key=str)
    if unknown:
        raise SettingsError(
            f"unknown checkpoint setting {', '.join(map(repr, unknown))}", f"Valid ones: {', '.join(sorted(valid))}"
        )
    for key, value in values.items():
        problem = CHECKS[key](value)
        if problem:
            raise SettingsError(f"checkpoint setting {key} is {value!r}", f"It must be {problem}")
    return Settings(**values)  # type: ignore[arg-type]  # each value has just been checked


def _number(value: object, least: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= least


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check(accepts: Callable[[object], bool], wanted: str) -> Callable[[object], str]:
    return lambda value: "" if accepts(value) else wanted


def _one_of(*names: str) -> Callable[[object], str]:
    return _check(lambda value: value in names, " or ".join(map(repr, names)))


_YES_NO = _check(lambda value: isinstance(value, bool), "True or False")
_COUNT = _check(lambda value: _whole(value, 0), "a whole number, 0 or more")
_POSITIVE_COUNT = _check(lambda value: _whole(value, 1), "a whole number, 1 or more")
_SECONDS = _check(lambda value: _number(value, 0), "a number of seconds, 0 or more")

# One check per setting: returns what the value must be, or "" if it is that.
CHECKS: Mapping[str, Callable[[object], str]] = {
    "host_cache_size": _check(lambda v: v is None or _number(v, 0), "a number of GiB, 0 or more, or None"),
    "parser_threads": _POSITIVE_COUNT,
    "pin_host_cache": _YES_NO,
    "trainer": lambda _: "",
    "save_steps": _check(lambda v: v in (None, AUTO) or _whole(v, 1), "a number of steps, 'auto' or None"),
    "save_seconds": _check(lambda v: v is None or (_number(v, 0) and v != 0), "a number of seconds above 0, or None"),
    "max_overhead": _check(lambda v: _number(v, 0) and v != 0, "a percentage above 0"),
    "keep_last": _COUNT,
    "keep_every": _check(lambda v: v is None or _whole(v, 1), "a number of steps, or None"),
    "back_pressure": _one_of("skip", "wait"),
    "strict_resume": _YES_NO,
    "max_failures": _POSITIVE_COUNT,
    "copy": _one_of("auto", "lazy", "eager"),
    "debug_hash": _YES_NO,
    "direct_io": _YES_NO,
    "validator_socket": _check(
        lambda v: v is None or (isinstance(v, str) and v != ""), "the path of a socket, or None"
    ),
    "fence_timeout": _SECONDS,
    "commit_timeout": _SECONDS,
    "drain_timeout": _SECONDS,
    "term_grace": _SECONDS,
}

"""Which backend asks Slurm: its commands, or pyslurm where it is there and fits the cluster's release."""

from __future__ import annotations

import importlib
import os
import subprocess
from collections.abc import Callable
from types import ModuleType

from slurm_ft.config import Backend, Config
from slurm_ft.errors import SlurmFtError
from slurm_ft.slurm.bindings import Bindings
from slurm_ft.slurm.cli import CommandLine


class PyslurmError(SlurmFtError):
    """pyslurm cannot be used: it is missing, broken, or built for another release."""


def backend(config: Config, complain: Callable[[str], None]) -> CommandLine | Bindings:
    """The backend that the configuration asks for.

    Where pyslurm cannot be used it is the commands all the same: no failover is lost to a missing library. `auto` is
    silent about that, and a `pyslurm` that was demanded is complained of.
    """
    commands = CommandLine.of(config)
    if config.backend is Backend.CLI:
        return commands
    try:
        return Bindings(load_library(config), commands)
    except PyslurmError as error:
        if config.backend is Backend.PYSLURM:
            complain(f"{error}; Slurm's commands are used instead")
        return commands


def load_library(config: Config) -> ModuleType:
    """pyslurm, if it is built for the release of Slurm that is installed here. Raises PyslurmError."""
    if config.slurm_conf:
        os.environ["SLURM_CONF"] = str(config.slurm_conf)  # libslurm reads it when it is loaded
    try:
        library = importlib.import_module("pyslurm")
        built = _release(str(library.__version__))
    except Exception as error:
        # A broken build fails in any way, and a bad slurm.conf makes libslurm complain in its own.
        hint = "Install the pyslurm of the cluster's release, or set `backend: cli` in slurm_ft.yaml"
        raise PyslurmError(f"pyslurm cannot be imported: {error!r}", hint) from error
    running = _release(_version_of(config))
    if built != running:
        hint = f"Install pyslurm {running[0]}.{running[1]}, or set `backend: cli` in slurm_ft.yaml"
        raise PyslurmError(f"pyslurm is built for Slurm {built[0]}.{built[1]}, and the cluster's differs", hint)
    return library


def _version_of(config: Config) -> str:
    """What `squeue --version` says: `slurm-wlm 22.05.8` in Debian, `slurm 25.11.2` elsewhere."""
    try:
        done = subprocess.run(
            [str(config.slurm_bin / "squeue"), "--version"],
            capture_output=True, text=True, timeout=config.command_timeout, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise PyslurmError(f"the release of Slurm is unknown: {error}", "Set slurm_bin in slurm_ft.yaml") from error
    return done.stdout.split()[-1]


def _release(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)

"""`slurm-ft hook NAME`: the Python part of the hooks. Fails open: no error of ours stops a job's start or end."""

from __future__ import annotations

import argparse
import os
import traceback
from importlib import import_module

from slurm_ft import config, log

HOOKS = {
    "node-epilog": "slurm_ft.node.epilog",
    "node-gate": "slurm_ft.node.gate",
    "gate-release": "slurm_ft.node.gate_release",
    "nvml-snapshot": "slurm_ft.node.nvml_snapshot_hook",
    "slurmctld-epilog": "slurm_ft.controller.epilog",
    "slurmctld-prolog": "slurm_ft.controller.prolog",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", choices=list(HOOKS))


def run(arguments: argparse.Namespace) -> int:
    """Run one hook with the environment that Slurm gave it."""
    settings = config.Config()
    try:
        settings = config.load()
        code: int = import_module(HOOKS[arguments.name]).run(os.environ, settings)
    except Exception:  # the last line of defence: a bug in us must never cost a job or a node
        log.open_log(settings, arguments.name).error("failed, nothing was done: %s", traceback.format_exc())
        return 0
    return code

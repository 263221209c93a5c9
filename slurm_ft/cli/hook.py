"""`slurm-ft hook NAME`: the Python part of the hooks. Fails open: no error of ours stops a job's start or end."""

from __future__ import annotations

import argparse
import os
import time
import traceback
from importlib import import_module

from slurm_ft import config, log
from slurm_ft.alert import Alert, Kind, alert
from slurm_ft.slurm import environment

HOOKS = {
    "node-epilog": "slurm_ft.node.epilog",
    "node-gate": "slurm_ft.node.gate",
    "gate-release": "slurm_ft.node.gate_release",
    "nvml-snapshot": "slurm_ft.node.nvml_snapshot_hook",
    "restart-line": "slurm_ft.launch.restart_line",
    "slurmctld-epilog": "slurm_ft.controller.epilog",
    "slurmctld-prolog": "slurm_ft.controller.prolog",
}

UMASK = 0o027  # whatever slurmd's own is: what hooks write names users' jobs


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", choices=list(HOOKS))


def run(arguments: argparse.Namespace) -> int:
    """Run one hook with the environment that Slurm gave it."""
    os.umask(UMASK)
    settings = config.Config()
    try:
        settings = config.load()
        code: int = import_module(HOOKS[arguments.name]).run(os.environ, settings)
    except Exception:  # the last line of defence: a bug in us must never cost a job or a node
        _tell(settings, arguments.name)
        return 0
    return code


def _tell(settings: config.Config, name: str) -> None:
    """For the handler of an exception, which goes into the log as a whole, and in its last line to people."""
    text = traceback.format_exc()
    hook_log = log.open_log(settings, name)
    hook_log.error("failed, nothing was done: %s", text)
    last, node = text.strip().splitlines()[-1], os.uname().nodename
    told = Alert(
        kind=Kind.HOOK_FAILED,
        what=f"the hook {name} failed on {node}",
        at=time.time(),
        subject=f"hook {name} on {node}",
        job=os.environ.get(environment.JOB_ID, ""),
        nodes=node,
        line=last,
        following="Slurm goes on as if there were no such hook",
        command="slurm-ft reconcile, and see the hook's log",
    )
    alert(hook_log, f"{told.what}: {last}", told)

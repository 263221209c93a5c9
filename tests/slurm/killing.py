"""A `slurm-ft` that is killed, or hangs, at a step that a test names: the real one, with its calls of Slurm and of the
journal wrapped. Production code knows nothing of it.

The lab's EpilogSlurmctld calls it in place of slurm-ft. A plan is a file `JOBID` in the directory of plans, holding
`kill before requeue`, `kill after recorded` or `hang after decided`: action, side, and a method of the Slurm protocol
or a stage of the journal. It is carried out once.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from slurm_ft import journal
from slurm_ft.cli.main import main
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobUpdate

METHODS = ("job", "nodes", "requeue", "excluded_nodes")
HANGS = 60.0  # seconds; longer than any test waits


def install(plans: Path, repository: Path) -> Path:
    """Write the hook that a LabSpec is to name as epilog_slurmctld; returns its path."""
    plans.chmod(0o755)
    command = plans / "slurm-ft"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__)} {plans} "$@"\n')
    hook = plans / "epilog_slurmctld"
    hook.write_text(f"#!/bin/sh\nexport SLURM_FT_BIN={command}\nexec {repository}/epilog/slurmctld_epilog\n")
    for script in (command, hook):
        script.chmod(0o755)
    return hook


def _reached(plan: Path, side: str, step: str) -> None:
    try:
        action, planned_side, planned_step = plan.read_text().split()
    except OSError:
        return
    if (side, step) != (planned_side, planned_step):
        return
    plan.rename(plan.with_suffix(".done"))
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(HANGS)


def _around(plan: Path, step: Callable[..., str], function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        name = step(*arguments)
        _reached(plan, "before", name)
        answer = function(*arguments, **named)
        _reached(plan, "after", name)
        return answer

    return wrapped


def _update(_: CommandLine, address: str, update: JobUpdate) -> str:
    return "let_start" if update.start_now else "update_job"


def _wrap(plan: Path) -> None:
    for name in METHODS:
        setattr(CommandLine, name, _around(plan, lambda *_, name=name: name, getattr(CommandLine, name)))
    CommandLine.update_job = _around(plan, _update, CommandLine.update_job)  # type: ignore[method-assign]
    journal.append = _around(plan, lambda _, entry, *more: entry.stage.value, journal.append)


if __name__ == "__main__":
    plans, arguments = Path(sys.argv[1]), sys.argv[2:]
    _wrap(plans / os.environ.get("SLURM_JOB_ID", "none"))
    sys.exit(main(arguments))

"""`slurm-ft resume`: choose the checkpoint for this attempt and hand it to the batch script.

It runs once per attempt on the batch host, before `srun`, so that all ranks agree:

    assignments=$(slurm-ft resume --framework pytorch --output-dir "$OUTPUT_DIR") || exit
    eval "$assignments"

stdout carries nothing but shell assignments: `export CKPT_LAST_STEP=…` and `export CKPT_LAST_PATH=…`, or an `unset` of
both when training starts from scratch. Scripts test whether the variable is *set*, so an empty one would not do.
Everything for the reader goes to stderr, which is the job's log.

The exit code is 0 in both cases. It is non-zero only when the storage did not answer. Training must not start then: it
would begin at step 0 and overwrite what is there. A script that uses `eval "$(slurm-ft resume …)"` in one line cannot
see that exit code, so in this case stdout carries `exit 74`, which ends it with or without `set -e`.
"""

from __future__ import annotations

import os
import shlex
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_ft.checkpoints.finding import Condition, printable
from slurm_ft.checkpoints.layouts import BY_NAME
from slurm_ft.checkpoints.resume import Search, find_newest_valid
from slurm_ft.cli.banner import ask_slurm, banner, restart_of
from slurm_ft.errors import SlurmFtError

if TYPE_CHECKING:
    import argparse

UNSET = "unset CKPT_LAST_STEP CKPT_LAST_PATH\n"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--framework", choices=("auto", *BY_NAME), default="auto", help="whose layout (default auto)")
    parser.add_argument("--output-dir", type=Path, required=True, metavar="DIR", help="where training saves")


def run(args: argparse.Namespace) -> int:
    """Run the command. Raises SlurmFtError, after telling the evaluating shell to stop, if storage does not answer."""
    info = ask_slurm(os.environ)
    try:
        search = find_newest_valid(args.output_dir, args.framework)
    except SlurmFtError as error:
        _log(banner(os.environ, info, "impossible", datetime.now(timezone.utc)))
        _hand_over(f"exit {error.exit_code}\n")
        raise
    _log(banner(os.environ, info, _resume(search), datetime.now(timezone.utc)))
    for line in report(search, restart_of(os.environ)):
        _log(line)
    _hand_over(assignments(search))
    return 0


def assignments(search: Search) -> str:
    """Return the shell text for stdout. Any path is safe in it, whatever characters its directory has."""
    if search.point is None:
        return UNSET
    path = shlex.quote(str(search.point.path))
    return f"export CKPT_LAST_STEP={search.point.step}\nexport CKPT_LAST_PATH={path}\n"


def report(search: Search, restart: int) -> list[str]:
    """Return the lines for the log: each checkpoint passed over and why, and why training starts where it does."""
    lines = [
        f"slurm_ft: passed over {printable(rejected.candidate.path.name)} (step {rejected.candidate.step}): "
        f"{rejected.finding.condition.value}: {printable(rejected.finding.reason)}"
        for rejected in search.rejected
    ]
    if search.point is None:
        lines.append(_scratch(search, restart))
    elif search.point.finding.condition is Condition.UNVERIFIED:
        lines.append(f"slurm_ft: {search.point.path.name} could not be verified: {search.point.finding.reason}")
    return lines


def _scratch(search: Search, restart: int) -> str:
    directory = printable(str(search.directory))
    if search.rejected:
        names = ", ".join(printable(rejected.candidate.path.name) for rejected in search.rejected)
        return f"slurm_ft: WARNING: no valid checkpoint in {directory} ({names}): starting from scratch"
    if not search.exists and restart > 0:
        return (
            f"slurm_ft: WARNING: {directory} does not exist after restart {restart}: starting from scratch. "
            "If an earlier attempt saved there, its file system is not mounted on this node"
        )
    return f"slurm_ft: no checkpoint in {directory} yet: starting from scratch"


def _resume(search: Search) -> str:
    return "from scratch" if search.point is None else f"step {search.point.step}"


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _hand_over(text: str) -> None:
    """Write the bytes of the path as they are: a directory's name need not be valid in the locale's encoding."""
    sys.stdout.buffer.write(os.fsencode(text))
    sys.stdout.buffer.flush()

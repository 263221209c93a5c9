"""`slurm-ft resume`: choose the checkpoint for this attempt and hand it to the batch script.

It runs once per attempt on the batch host, before `srun`, so that all ranks agree:

    assignments=$(slurm-ft resume --framework hf --output-dir "$OUTPUT_DIR") || exit
    eval "$assignments"

stdout carries nothing but shell assignments: `export CKPT_LAST_STEP=…`, `CKPT_LAST_PATH`, `CKPT_LAYOUT`,
`CKPT_VERDICT`, `CKPT_RESUME_ARGS` and what the framework needs besides; or an `unset` of them when training starts from
scratch. Scripts test whether the variable is *set*, so an empty one would not do. Everything for the reader goes to
stderr, which is the job's log.

The exit code is 0 in both cases. It is non-zero when the storage did not answer, or when no checkpoint is valid and
`--on-no-valid fail` was given. Training must not start then: it would begin at step 0 and overwrite what is there. A
script that uses `eval "$(slurm-ft resume …)"` in one line cannot see that exit code, so in this case stdout carries
`exit 74`, which ends it with or without `set -e`.
"""

from __future__ import annotations

import os
import shlex
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from slurm_ft.checkpoints import (
    CheckpointError,
    Level,
    Policy,
    ResumePoint,
    Search,
    Verdict,
    act_on,
    choose,
    count_search,
    printable,
    read_record,
    room_for_another,
    write_record,
)
from slurm_ft.checkpoints.act import QUARANTINE_CHOICES
from slurm_ft.checkpoints.layouts import BY_NAME
from slurm_ft.cli import given
from slurm_ft.cli.banner import JobInfo, ask_slurm, banner
from slurm_ft.cli.checkpoint_errors import translated
from slurm_ft.cli.progress_bar import ProgressBar
from slurm_ft.cli.supervised import HangingStorageError, supervised
from slurm_ft.errors import SlurmFtError
from slurm_ft.launch.choice import Choice
from slurm_ft.launch.restart_line import TOLD
from slurm_ft.slurm import environment
from slurm_ft.slurm.environment import restart_of

if TYPE_CHECKING:
    import argparse

LEVELS = {level.word: level for level in Level}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    declare_search(parser)


def declare_search(parser: argparse.ArgumentParser) -> None:
    """Declare what says how to choose."""
    parser.add_argument("--framework", choices=("auto", *BY_NAME), default="auto", help="whose layout (default auto)")
    parser.add_argument("--output-dir", type=given.directory, required=True, metavar="DIR", help="where training saves")
    parser.add_argument(
        "--level",
        choices=("auto", *LEVELS),
        default="auto",
        help="how closely to look (default auto: every byte up to 2 GiB, the structure of what is larger)",
    )
    parser.add_argument(
        "--budget",
        type=given.seconds,
        default=300.0,
        metavar="SECONDS",
        help="for reading whole checkpoints (default 300)",
    )
    parser.add_argument(
        "--on-no-valid",
        choices=("scratch", "fail"),
        default="scratch",
        help="if there are checkpoints and none is valid: start from scratch with a warning (default), or fail",
    )
    parser.add_argument(
        "--quarantine",
        choices=QUARANTINE_CHOICES,
        default="auto",
        help="rename broken checkpoints away, reversibly (default auto: only where the framework would pick one)",
    )
    parser.add_argument(
        "--world-size", type=given.ranks, metavar="N", help="ranks of this job, where the layout depends on it"
    )
    parser.add_argument(
        "--timeout",
        type=given.seconds,
        default=1800.0,
        metavar="SECONDS",
        help="give up if the storage has not answered by then (default 1800)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command. Raises HangingStorageError, after telling the evaluating shell to stop, if storage hangs.

    A child does all that touches the storage: a process that waits for a dead file server cannot be interrupted.
    """
    try:
        code, output = supervised(lambda: _decide_and_assign(args), args.timeout, printable(str(args.output_dir)))
    except HangingStorageError as error:
        _hand_over(f"exit {error.exit_code}\n")
        raise
    _hand_over(os.fsdecode(output))
    return code


def _decide_and_assign(args: argparse.Namespace) -> int:
    """Decide and write the assignments. Raises SlurmFtError after writing `exit` for the evaluating shell."""
    try:
        choice = decide(args, ask_slurm(os.environ))
    except SlurmFtError as error:
        _hand_over(f"exit {error.exit_code}\n")
        raise
    write_record(choice.search, os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_RESTART_COUNT", "0"))
    count_search(choice.search)
    _hand_over(assignments(choice))
    return 0


def decide(args: argparse.Namespace, info: JobInfo | None) -> Choice:
    """Choose, act on it, and say in the log what and why. Raises SlurmFtError: then training must not start."""
    if info and info.again and TOLD not in os.environ:
        _log(info.again)
    with translated():
        try:
            search = choose(args.output_dir, args.framework, _policy(args))
            actions = act_on(search, quarantine_when=args.quarantine, job_id=os.environ.get("SLURM_JOB_ID", "manual"))
        except CheckpointError:
            _log(banner(os.environ, info, "impossible", datetime.now(timezone.utc)))
            raise
    step = (read_record(search.directory) or {}).get("step")
    choice = Choice(search, actions, step if isinstance(step, int) else None, room_for_another(search))
    _log(banner(os.environ, info, _resume(search), datetime.now(timezone.utc)))
    if (tasks := environment.tasks_of_step(os.environ)) > 1:
        _log(f"slurm_ft: WARNING: each of {tasks} tasks chooses for itself: start slurm-ft once, before srun")
    for line in report(choice, restart_of(os.environ)):
        _log(line)
    return choice


def _policy(args: argparse.Namespace) -> Policy:
    return Policy(
        level=LEVELS.get(args.level),
        on_no_valid=args.on_no_valid,
        budget_seconds=args.budget,
        world_size=args.world_size,
        progress=ProgressBar(sys.stderr),
    )


def assignments(choice: Choice) -> str:
    """Return the shell text for stdout. Any path is safe in it, whatever characters its directory has."""
    unset = [name for name, value in choice.environ.items() if value is None]
    exports = [f"export {name}={shlex.quote(value)}\n" for name, value in choice.environ.items() if value is not None]
    return "".join(exports) + f"unset {' '.join(unset)}\n" * bool(unset)


def report(choice: Choice, restart: int) -> list[str]:
    """Return the lines for the log: each checkpoint passed over and why, and why training starts where it does."""
    search, actions = choice.search, choice.actions
    lines = [
        f"slurm_ft: passed over {printable(rejected.candidate.path.name)} (step {rejected.candidate.step}): "
        f"{rejected.finding.verdict.value}: {printable(rejected.finding.reason)}"
        for rejected in search.rejected
    ]
    lines += [f"slurm_ft: moved {printable(str(one.origin))} to {printable(str(one.place))}" for one in actions.moved]
    if actions.moved:
        lines.append(f"slurm_ft: `slurm-ft checkpoints restore {shlex.quote(str(search.directory))}` moves them back")
    lines += [f"slurm_ft: {printable(str(path))} names the chosen checkpoint now" for path in actions.trackers]
    return lines + (_remarks(choice, search.point) if search.point else [_scratch(choice, restart)])


def _remarks(choice: Choice, point: ResumePoint) -> list[str]:
    name = printable(point.path.name)
    remarks = []
    if point.finding.verdict is not Verdict.VALID:
        reason = printable(point.finding.reason)
        remarks.append(f"slurm_ft: WARNING: {name} is {point.finding.verdict.value}: {reason}")
    if point.finding.note:
        remarks.append(f"slurm_ft: {name}: {printable(point.finding.note)}")
    if choice.room and not choice.room.enough:
        directory = printable(str(choice.search.directory))
        remarks.append(f"slurm_ft: WARNING: {choice.room}: the next save into {directory} may fail. Remove what is old")
    return remarks


def _scratch(choice: Choice, restart: int) -> str:
    search = choice.search
    directory = printable(str(search.directory))
    if search.rejected:
        names = ", ".join(printable(rejected.candidate.path.name) for rejected in search.rejected)
        return f"slurm_ft: WARNING: no valid checkpoint in {directory} ({names}): starting from scratch"
    if not search.exists and restart > 0:
        return (
            f"slurm_ft: WARNING: {directory} does not exist after restart {restart}: starting from scratch. "
            "If an earlier attempt saved there, its file system is not mounted on this node"
        )
    if choice.lost:
        return (
            f"slurm_ft: WARNING: no checkpoint is left in {directory}, and the last attempt went on from step "
            f"{choice.before}: starting from scratch. A framework that keeps one deletes it before the next is whole: "
            "let it keep two"
        )
    return f"slurm_ft: no checkpoint in {directory} yet: starting from scratch"


def _resume(search: Search) -> str:
    return "from scratch" if search.point is None else f"step {search.point.step}"


def _log(line: str) -> None:
    """Into the job's log. Of the tasks of a step that each run this, the first one speaks."""
    if environment.first_task(os.environ):
        print(line, file=sys.stderr, flush=True)


def _hand_over(text: str) -> None:
    """Write the bytes of the path as they are: a directory's name need not be valid in the locale's encoding."""
    sys.stdout.buffer.write(os.fsencode(text))
    sys.stdout.buffer.flush()

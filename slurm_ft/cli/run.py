"""`slurm-ft run … -- COMMAND`: all of the resume, once per attempt on the batch host, and then the training itself.

    slurm-ft run --framework hf --output-dir "$OUTPUT_DIR" -- srun torchrun … train.py

It becomes COMMAND, so signals and exit code are the training's own. A process beside it tells in the job's log whether
training really went on from the chosen step, and notes the step in the job's Comment. Nothing of that can stop the
training, with one exception: storage that does not answer (exit code 74, nothing is started), since it would begin at
step 0 and overwrite what is there.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from slurm_ft import config
from slurm_ft.checkpoints import Search, printable
from slurm_ft.checkpoints.find import AUTO
from slurm_ft.cli import resume
from slurm_ft.cli.banner import JobInfo, ask_slurm
from slurm_ft.cli.supervised import supervised
from slurm_ft.errors import SlurmFtError
from slurm_ft.launch import extension_locks, start, validator
from slurm_ft.launch.arguments import configuration, with_resume
from slurm_ft.launch.attempt import begin
from slurm_ft.launch.choice import Choice
from slurm_ft.launch.environment import training_environment
from slurm_ft.slurm import environment
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.training_config import resuming_copy

EPILOG = """\
COMMAND sees CKPT_LAST_STEP and CKPT_LAST_PATH (unset when it starts from scratch), and $CHECKPOINT_VENDOR first on
PYTHONPATH. Options that its framework needs to resume are added only where the command shows the framework.
Exit code: COMMAND's own; 74 when the storage does not answer, 127 when COMMAND does not exist."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, EPILOG
    resume.declare_search(parser)
    parser.add_argument(
        "--stop-on-restart-from-zero",
        action="store_true",
        help="end a training that begins at 0 although a checkpoint was chosen (default: an alert)",
    )
    parser.usage = "slurm-ft run [options] --output-dir DIR -- COMMAND …"
    parser.set_defaults(command=())


def run(arguments: argparse.Namespace) -> int:
    """Never returns when all goes well: this process becomes the training. Raises SlurmFtError; an error of the choice
    has been told already, and its exit code is returned."""
    command: Sequence[str] = arguments.command
    if not command:
        raise SlurmFtError("there is no command to run", "Write it behind `--`: slurm-ft run … -- srun python train.py")
    path = start.program(command, os.environ)
    info = ask_slurm(os.environ)
    code, decided = supervised(
        partial(_decide, arguments, info), arguments.timeout, printable(str(arguments.output_dir))
    )
    if code:
        return code
    choice = Choice.decode(decided)
    words = _with_configuration(command, choice.search) or with_resume(
        command, choice.arguments, choice.search.layout.name, named=arguments.framework != AUTO
    )
    if words != list(command):
        _say(f"slurm_ft: the command was given what it needs to resume: {printable(shlex.join(words))}")
    environ = training_environment(os.environ, choice.environ)
    _clear_locks(environ)
    if companion := validator.start(environ, _say):
        environ[validator.SOCKET_VARIABLE] = str(companion.socket)
    attempt = begin(choice, environ, info.comment if info else "", stop=arguments.stop_on_restart_from_zero)
    start.beside(attempt.accompany)
    start.become(path, words, environ)
    return 0


def _decide(arguments: argparse.Namespace, info: JobInfo | None) -> int:
    """Choose in a process of its own: one that waits for a dead file server cannot be interrupted."""
    sys.stdout.buffer.write(resume.decide(arguments, info).encode())
    return 0


def _with_configuration(command: Sequence[str], search: Search) -> list[str]:
    """LLaMA-Factory's command with a copy of its configuration that resumes; empty if there is none to copy."""
    place = configuration(command)
    if place is None:
        return []
    try:
        copy = resuming_copy(Path(command[place]), search.directory, search.point.path if search.point else None)
    except SlurmFtError as error:
        _say(f"slurm_ft: WARNING: {error}")
        return []
    return [*command[:place], str(copy), *command[place + 1 :]]


def _clear_locks(environ: Mapping[str, str]) -> None:
    """Locks that a killed compilation left behind would hang the training without a word."""
    locks = extension_locks.clear(environ, partial(_runs_alone, environ))
    for lock in locks.cleared:
        _say(f"slurm_ft: removed the stale lock {printable(str(lock))} that a killed compilation left behind")
    for lock, reason in locks.kept:
        _say(
            f"slurm_ft: WARNING: {printable(str(lock))} is kept: {reason}. If training hangs at its start, remove it, "
            f"or set {extension_locks.VARIABLE} to a directory of this job's own"
        )


def _runs_alone(environ: Mapping[str, str]) -> bool:
    """Whether the user has no other job that runs; no, if Slurm does not say."""
    try:
        running = CommandLine.of(config.load()).impatient().jobs(("--me", "--states=RUNNING"))
    except SlurmFtError:
        return False
    return bool(running) and all(str(job.raw_id) == environ.get(environment.JOB_ID) for job in running)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

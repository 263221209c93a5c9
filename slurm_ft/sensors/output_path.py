"""Where a job's output is: Slurm's filename patterns (sbatch(1), "filename pattern"). Pure.

SLURM_JOB_STDOUT in the hooks is unexpanded on 22.05 (measured): `/tmp/o-%j.txt`. The node Epilog is not told the job's
name there, so `%x` stays open: UNKNOWN then stands in the path for any text. Nor is it told that the job is a task of
an array (22.05, measured): `may_be_of_an_array` says when that has to be asked.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping

STDOUT = "SLURM_JOB_STDOUT"
STDERR = "SLURM_JOB_STDERR"
WORK_DIR = "SLURM_JOB_WORK_DIR"
_PATTERN = re.compile(r"%([0-9]{0,2})([%AaJjNnstuxb])")
_VARIABLES = {
    "j": "SLURM_JOB_ID",
    "J": "SLURM_JOB_ID",
    "A": "SLURM_ARRAY_JOB_ID",
    "a": "SLURM_ARRAY_TASK_ID",
    "u": "SLURM_JOB_USER",
    "x": "SLURM_JOB_NAME",
    "N": "SLURMD_NODENAME",
}
_FIXED = {"%": "%", "n": "0", "t": "0", "s": "batch"}  # of the batch step
_MAX_WIDTH = 10
UNKNOWN = "\x01"
NO_TASK = "4294967294"  # what %a is in a job that is no array


def output_path(environ: Mapping[str, str]) -> str | None:
    """The absolute path of the batch script's output; None if Slurm did not say enough."""
    directory = environ.get(WORK_DIR, "")
    pattern = environ.get(STDOUT) or ("slurm-%A_%a.out" if "SLURM_ARRAY_JOB_ID" in environ else "slurm-%j.out")
    if any(character in pattern for character in ("\0", UNKNOWN)):
        return None
    path = expand(pattern, environ)
    if UNKNOWN in path and not _names_the_job(pattern):
        return None  # it would fit other jobs' files too
    if path.startswith("/"):
        return path
    return f"{directory}/{path}" if directory.startswith("/") else None


def may_be_of_an_array(environ: Mapping[str, str]) -> bool:
    """Whether the path would be another one if the job were a task of an array, which the environment does not say."""
    letters = {match[2] for match in _PATTERN.finditer(environ.get(STDOUT) or "%A_%a")}  # Slurm's default for a task
    return "SLURM_ARRAY_JOB_ID" not in environ and not letters.isdisjoint("Aab")


def _names_the_job(pattern: str) -> bool:
    return any(match[2] in "jJA" for match in _PATTERN.finditer(pattern))


def expand(pattern: str, environ: Mapping[str, str]) -> str:
    """`pattern` with its %-signs replaced. A backslash anywhere turns that off, and goes away."""
    if "\\" in pattern:
        return pattern.replace("\\", "")
    return _PATTERN.sub(lambda match: _value(match[2], match[1], match[0], environ), pattern)


def _value(letter: str, width: str, text: str, environ: Mapping[str, str]) -> str:
    if letter in _FIXED:
        value: str | None = _FIXED[letter]
    elif letter == "b":
        task = environ.get("SLURM_ARRAY_TASK_ID", "")
        value = str(int(task) % 10) if task.isdecimal() else None
    else:
        value = environ.get(_VARIABLES[letter]) or _default(letter, environ)
    if value is None:
        return UNKNOWN if letter == "x" else text
    if letter == "N":
        value = value.partition(".")[0]
    return value.rjust(min(int(width or 0), _MAX_WIDTH), "0") if value.isdecimal() else value


def _default(letter: str, environ: Mapping[str, str]) -> str | None:
    if letter == "a":
        return NO_TASK
    return environ.get("SLURM_JOB_ID") if letter == "A" else None

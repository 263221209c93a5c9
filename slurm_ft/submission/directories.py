"""Where a script has its training save: the directories that its text names. Pure.

A script is a program, and this is no shell: it looks for assignments to well-known names and for well-known options,
and puts in the variables that the script itself or the environment sets. What it cannot resolve it does not judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

NAMES = frozenset(("OUTPUT_DIR", "CKPT_DIR", "CHECKPOINT_DIR", "CHECKPOINT_PATH", "SAVE_DIR", "SAVE_PATH"))
OPTIONS = (
    "--output-dir", "--output_dir", "--save", "--save-dir", "--save_dir", "--checkpoint-dir", "--checkpoint_dir",
    "--ckpt-dir", "--ckpt_dir", "--save-path", "--save_path",
)  # fmt: skip
NODE_LOCAL = frozenset(("TMPDIR", "SLURM_TMPDIR", "TMP", "LOCAL_SCRATCH", "LOCALSCRATCH", "SLURM_JOB_TMPDIR"))
DEPTH = 8  # variables within variables
LONGEST = 4096  # characters: PATH_MAX. Variables that double each other would have no end
IN_THE_JOB = "0"  # for what Slurm sets in the job: a number or a name
UNKNOWN = "\0"
UNRESOLVED = re.compile(r"[\0$`]")
_VALUE = r"""(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s"';|&]+))"""
_ASSIGNMENT = re.compile(rf"^\s*(?:export\s+|readonly\s+|declare\s+-x\s+)?(?P<name>[A-Za-z_]\w*)={_VALUE}")
_OPTION = re.compile(rf"(?<!\S)(?P<name>{'|'.join(OPTIONS)})(?:=|\s+){_VALUE}")
_VARIABLE = re.compile(r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?::?-(?P<default>[^{}]*))?\})")


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory that line `line` names by `name`.

    `path` is "" if it could not be resolved; `node_local` is the variable in it that means a place of the node's own.
    """

    line: int
    name: str
    path: str
    node_local: str = ""


def directories(body: Iterable[tuple[int, str]], environ: Mapping[str, str], directory: str) -> Iterator[Directory]:
    """The directories in the order of their lines. `directory` is where the job starts."""
    known = {name: value for name, value in environ.items() if name not in NODE_LOCAL}
    known.update(PWD=directory, SLURM_SUBMIT_DIR=directory)
    for number, line in body:
        if line.lstrip().startswith("#"):
            continue
        if found := _ASSIGNMENT.match(line):
            name, (text, local) = found["name"], _resolved(_value(found), known)
            if name in NAMES:
                yield _directory(number, name, text, local, directory)
            known[name] = f"${local}" if local else text
        for found in _OPTION.finditer(line):
            yield _directory(number, found["name"], *_resolved(_value(found), known), directory)


def _value(found: re.Match[str]) -> str:
    return next(text for text in (found["double"], found["single"], found["bare"], "") if text is not None)


def _directory(line: int, name: str, text: str, local: str, directory: str) -> Directory:
    if local or not text or UNRESOLVED.search(text):
        return Directory(line, name, "", local)
    return Directory(line, name, text if text.startswith("/") else f"{directory}/{text}")


def _resolved(value: str, known: Mapping[str, str]) -> tuple[str, str]:
    """`value` with its variables put in, and the name of one that means a place of the node's own."""
    for _ in range(DEPTH):
        names = [found["plain"] or found["name"] for found in _VARIABLE.finditer(value)]
        local = next((name for name in names if name in NODE_LOCAL and name not in known), "")
        if local or not names:
            return value, local
        if not _fits(value, known):
            return UNKNOWN, ""
        value = _VARIABLE.sub(lambda found: _put(found, known), value)
    return value, ""


def _fits(value: str, known: Mapping[str, str]) -> bool:
    """Whether it is short enough to be a path once its variables are put in."""
    room = LONGEST - len(value)
    for found in _VARIABLE.finditer(value):
        room -= len(_put(found, known))
        if room < 0:
            return False
    return room >= 0


def _put(found: re.Match[str], known: Mapping[str, str]) -> str:
    name = found["plain"] or found["name"]
    if known.get(name):
        return known[name]
    if found["default"] is not None:
        return found["default"]
    return IN_THE_JOB if name.startswith("SLURM_") else UNKNOWN

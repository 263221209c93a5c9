"""Read the `#SBATCH` lines of a script as sbatch does (measured on 22.05 to 26.05 with `sbatch -vvv`). Pure.

Lines that begin with the word count, up to the first line that is neither blank nor a comment. The words of all of them
are read together, so that a value may even stand on the next line. `#SBATCH hetjob` ends the first component's options.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_ft.submission.settings import Place, Problem, Settings, Word, of_environment, parse
from slurm_ft.submission.words import BLANKS, UnreadableLineError, words

MARKS = ("#SBATCH", "#SLURM")
HET = ("#SBATCH hetjob", "#SBATCH packjob")
COMMAND_LINE = Place(name="the command line")


@dataclass(frozen=True, slots=True)
class Script:
    """A script as sbatch sees it, of a het job the first component."""

    settings: Settings
    problems: tuple[Problem, ...]  # sbatch refuses the script for these
    ignored: tuple[Problem, ...]  # lines that look like options and are none
    body: tuple[tuple[int, str], ...]  # from the first command on, with the numbers of the lines


def read(text: str) -> Script:
    """The options of a script, and all that is wrong with them."""
    lines = list(enumerate(text.split("\n"), start=1))
    first = next((number for number, line in lines if _is_command(line)), len(lines) + 1)
    head, body = lines[: first - 1], lines[first - 1 :]
    found, unreadable = _words(head)
    settings, wrong = parse(found)
    return Script(
        settings=settings,
        problems=(*_no_batch_script(text), *unreadable, *wrong),
        ignored=(*_near_misses(head), *_too_late(body, first)),
        body=tuple(body),
    )


def with_others(script: Script, environ: Mapping[str, str], arguments: Sequence[str]) -> Script:
    """The script with what sbatch's environment and its command line change: the latter wins."""
    given, wrong = parse(Word(word, COMMAND_LINE) for word in arguments)
    settings = {**script.settings, **of_environment(environ), **given}
    return replace(script, settings=settings, problems=(*script.problems, *wrong))


def _words(head: Iterable[tuple[int, str]]) -> tuple[list[Word], list[Problem]]:
    found: list[Word] = []
    unreadable = []
    for number, line in head:
        if line.startswith(HET):
            break
        if line.startswith(MARKS):
            try:
                found += [Word(word, Place(number)) for word in words(_behind_mark(line))]
            except UnreadableLineError as error:
                unreadable.append(Problem(Place(number), str(error)))
    return found, unreadable


def _is_command(line: str) -> bool:
    text = line.strip(BLANKS)
    return bool(text) and not text.startswith("#")


def _behind_mark(line: str) -> str:
    return line[len(next(mark for mark in MARKS if line.startswith(mark))) :]


def _no_batch_script(text: str) -> Iterator[Problem]:
    if not text.startswith("#!"):
        yield Problem(Place(1), "no batch script: it has to begin with #! and the path of an interpreter")
    if "\0" in text:
        yield Problem(Place(text[: text.index("\0")].count("\n") + 1), "a NUL byte, which Slurm takes in no script")
    if "\r\n" in text:
        yield Problem(Place(text[: text.index("\r\n")].count("\n") + 1), "DOS line ends: dos2unix takes them away")


def _near_misses(head: Iterable[tuple[int, str]]) -> Iterator[Problem]:
    """Comments that were meant as options. `##SBATCH` is how people switch a line off."""
    for number, line in head:
        bare = "".join(line.split()).upper()
        if bare.startswith("#SBATCH-") and not line.startswith(MARKS):
            yield Problem(Place(number), "a comment to sbatch: the line has to begin with #SBATCH, in capitals")


def _too_late(body: Iterable[tuple[int, str]], first: int) -> Iterator[Problem]:
    for number, line in body:
        if line.startswith("#SBATCH"):
            yield Problem(Place(number), f"not read by sbatch, which stops at the first command, in line {first}")

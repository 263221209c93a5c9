"""Options out of words, as getopt_long finds them for sbatch; and what its environment sets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm_ft.submission.options import LONG, SHORT, VARIABLES, Value, long_names

YES, NO = "yes", "no"  # the values of "requeue", which stands for --requeue and --no-requeue: the last one counts


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is said: a line of the script (from 1), or what `name` tells."""

    line: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """One option as it is in force. `value` is "" where none was given."""

    value: str
    place: Place


@dataclass(frozen=True, slots=True)
class Problem:
    """What sbatch refuses, or passes over without a word."""

    place: Place
    what: str


@dataclass(frozen=True, slots=True)
class Word:
    """A word and where it stands."""

    text: str
    place: Place


Settings = Mapping[str, Setting]


def parse(words: Iterable[Word]) -> tuple[Settings, tuple[Problem, ...]]:
    """The options, by their long names, and the words that sbatch would refuse."""
    reading = _Reading(list(words))
    reading.read()
    return reading.settings, tuple(reading.problems)


def of_environment(environ: Mapping[str, str]) -> Settings:
    """What variables such as SBATCH_SIGNAL set. --no-requeue comes before --requeue, as in sbatch's table."""
    reading = _Reading([])
    for variable, name in VARIABLES.items():
        if variable in environ and (LONG[name] is Value.REQUIRED or _switched_on(environ[variable])):
            value = environ[variable] if LONG[name] is Value.REQUIRED else ""
            reading.set(name, value, Place(name=variable))
    return reading.settings


def _switched_on(value: str) -> bool:
    """Of an option without a value: no value, `yes`, or a number that is not 0 (sbatch(1))."""
    return value in ("", YES) or (value.isascii() and value.isdigit() and int(value) != 0)


class _Reading:
    """The state of getopt_long: what is left of the words, and what was found."""

    def __init__(self, left: list[Word]) -> None:
        self.settings: dict[str, Setting] = {}
        self.problems: list[Problem] = []
        self._left = left[::-1]

    def read(self) -> None:
        while self._left:
            word = self._left.pop()
            if word.text == "--":
                self.problems += map(_stray, reversed(self._left))
                return
            if word.text.startswith("--"):
                self._long(word)
            elif word.text.startswith("-") and word.text != "-":
                self._short(word)
            else:
                self.problems.append(_stray(word))

    def set(self, name: str, value: str, place: Place) -> None:
        if name == "no-requeue":
            name, value = "requeue", NO
        elif name == "requeue":
            value = value or YES
        self.settings[name] = Setting(value, place)

    def _long(self, word: Word) -> None:
        text, equals, value = word.text[2:].partition("=")
        names = long_names(text)
        if not names:
            self._of_a_plugin(equals)
        elif len(names) > 1:
            self._refuse(word, f"--{text} may mean {', '.join(f'--{name}' for name in names)}")
        elif equals and LONG[names[0]] is Value.NONE:
            self._refuse(word, f"--{names[0]} takes no value")
        elif equals or LONG[names[0]] is not Value.REQUIRED:
            self.set(names[0], value, word.place)
        else:
            self._set_to_next(names[0], word)

    def _of_a_plugin(self, equals: str) -> None:
        """An option of a site's plugin; nobody here knows whether the next word is its value."""
        if not equals and self._left and not self._left[-1].text.startswith("-"):
            self._left.pop()

    def _short(self, word: Word) -> None:
        """`-H`, `-Jname`, or several in one: `-HJ name`."""
        for place, letter in enumerate(word.text[1:], start=2):
            name, rest = SHORT.get(letter), word.text[place:]
            if name is None:
                self._refuse(word, f"sbatch has no option -{letter}")
                return
            if LONG[name] is Value.NONE:
                self.set(name, "", word.place)
                continue
            if rest or LONG[name] is Value.OPTIONAL:
                self.set(name, rest, word.place)
            else:
                self._set_to_next(name, word)
            return

    def _set_to_next(self, name: str, word: Word) -> None:
        if self._left:
            self.set(name, self._left.pop().text, word.place)
        else:
            self._refuse(word, f"--{name} lacks its value")

    def _refuse(self, word: Word, what: str) -> None:
        self.problems.append(Problem(word.place, what))


def _stray(word: Word) -> Problem:
    return Problem(word.place, f"{word.text!r} is no option: is a quote or a `=` missing?")

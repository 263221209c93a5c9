"""Resume arguments for the training's command line. Pure.

Words that a program does not know end it, and words of the user's own must not be doubled. So an argument that the
command has already gets our value; another one is added only where the command shows a program that knows it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

# Layout -> what a command that takes the layout's arguments looks like. A transformers Trainer or a loop of one's own
# runs in a script of the user's, which may know no option at all: those layouts are not here.
_FACTORY = re.compile(r"(^|/)(llamafactory-cli|lmf)$|llamafactory-cli train")
PROGRAMS: Mapping[str, re.Pattern[str]] = {
    "llamafactory": _FACTORY,
    "llamafactory_v1": _FACTORY,
    "verl": re.compile(r"\bverl\.trainer\."),
    "megatron": re.compile(r"(^|[/ ])pretrain_\w+\.py\b"),
    "mindspeed": re.compile(r"(^|[/ ])p(re|ost)train_\w+\.py\b"),
    "torchtitan": re.compile(r"\btorchtitan\b"),
    "torchtune": re.compile(r"(^|/)tune$"),
    "nemo": re.compile(r"\bexp_manager\."),
}

CONFIGURATIONS = (".yaml", ".yml", ".json")  # what LLaMA-Factory reads


def with_resume(command: Sequence[str], arguments: Sequence[str], layout: str, *, named: bool) -> list[str]:
    """The command with the layout's resume `arguments`, which are `--option value`, `--option=value` or `key=value`.

    `named`: the user named the framework. That is enough where its programs are the framework's own.
    """
    words = list(command)
    shown = any(pattern.search(word) for word in words for pattern in _patterns(layout))
    for option, value in _pairs(arguments):
        if not _set(words, option, value) and (shown or (named and layout in PROGRAMS)):
            words += [f"{option}={value}"] if not option.startswith("-") else [option, value] if value else [option]
    return words


def configuration(command: Sequence[str]) -> int | None:
    """Which word names the configuration file of a LLaMA-Factory command; None if there is none."""
    program = next((place for place, word in enumerate(command) if PROGRAMS["llamafactory"].search(word)), None)
    if program is None:
        return None
    behind = range(program + 1, len(command))
    return next((place for place in behind if command[place].endswith(CONFIGURATIONS)), None)


def _patterns(layout: str) -> Sequence[re.Pattern[str]]:
    return (PROGRAMS[layout],) if layout in PROGRAMS else ()


def _pairs(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Option and value; a flag has none."""
    pairs: list[tuple[str, str]] = []
    for word in arguments:
        if "=" in word:
            option, _, value = word.partition("=")
            pairs.append((option, value))
        elif word.startswith("--"):
            pairs.append((word, ""))
        elif pairs:
            pairs[-1] = (pairs[-1][0], word)
    return pairs


def _set(words: list[str], option: str, value: str) -> bool:
    """Give an option that the command has already our value; whether it has it."""
    for place, word in enumerate(words):
        if word.lstrip("+").partition("=")[0] == option and "=" in word:
            words[place] = f"{word.partition('=')[0]}={value}"
            return True
        if word == option:
            if value:
                words[place + 1 : place + 2] = [value]
            return True
    return False

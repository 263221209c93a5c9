"""Every command in README and docs is run, or checked as far as a test can; one of a kind that nobody checks fails.

WAYS says which. The tutorial runs word for word in tests/slurm/test_tutorial.py, `make demo` and `make test` are what
CI runs, and the trainings of the frameworks run in tests/frameworks and tests/slurm/test_templates.py.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import metadata
from pathlib import Path

import pytest

from slurm_ft.cli import manual
from slurm_ft.cli.main import COMMANDS, parse, parser_of
from slurm_ft.sensors.kernel_lines import parse_line

ROOT = Path(__file__).parents[2]
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
)
ELSEWHERE = {"tutorial.md": "tests/slurm/test_tutorial.py"}
SHELL = ("bash", "sh", "console")
# Programs of these names exist; in our pages they are words of an output or of Python.
NO_COMMANDS = ("[", "last", "look", "from", "import", "with", "state")


def commands_of(page: Path) -> Iterator[str]:
    """What a reader would type: after a prompt, in a block of shell, or an indented line that starts with a program."""
    fence: str | None = None
    before = ""
    for line in page.read_text().split("\n"):
        if line.startswith("```"):
            fence = line[3:] if fence is None else None
        elif fence == "console":
            if line.startswith(("$ ", "# ")):
                yield line[2:]
        elif fence in SHELL:
            if line and not line.startswith("#"):
                yield line
        elif fence is None and line.startswith("    ") and not before.startswith(("- ", "* ", "1")):
            text = line.strip().removeprefix("$ ")
            program = program_of(text)
            if program in WAYS or (program not in NO_COMMANDS and shutil.which(program)):
                yield text
        before = line if line.strip() else before if line.startswith("    ") else ""


def program_of(command: str) -> str:
    """The first word that is no assignment and no sudo, without its directory."""
    words = command.split()
    while words and (re.match(r"[A-Za-z_]+=", words[0]) or words[0] in ("sudo", "export")):
        if words[0] == "export":
            return "export"
        words = words[1:]
    return words[0].rpartition("/")[2] if words else ""


def by_its_parser(command: str) -> None:
    """slurm-ft: the arguments that the real parser takes, and for the harmless ones a real run."""
    text = command.partition(" #")[0].strip().replace("$PWD", "/here")
    found = re.search(r"slurm-ft ([a-z-]+)([^|)]*)", text)
    assert found, command
    name, rest = found[1], shlex.split(found[2].partition("||")[0])
    assert name in COMMANDS, f"no such command: {name}"
    try:
        parse(parser_of(name, manual=False), rest)
    except SystemExit as error:
        pytest.fail(f"`{command}` is refused by its parser: {error.code}")
    if any(text.startswith(start) for start in HARMLESS):
        done = subprocess.run(
            [sys.executable, "-m", "slurm_ft.cli.main", name, *rest],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


HARMLESS = ("slurm-ft template list", "slurm-ft template show", "slurm-ft classify --cases tests/")


def by_a_dry_run(command: str) -> None:
    """make: every target and its recipe."""
    arguments = shlex.split(command, comments=True)[1:]
    done = subprocess.run(
        ["make", "-n", "VENV=.venv", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def by_its_files(command: str) -> None:
    """What is copied, submitted, enabled or run comes with slurm_ft."""
    words = shlex.split(command, comments=True)
    ours = [word.partition("share/slurm_ft/")[2] for word in words if "share/slurm_ft/" in word]
    ours += [f"sbatch_templates/{word}" for word in words if re.fullmatch(r"[a-z]+\.sbatch", word)]
    ours += [
        f"contrib/{word.removesuffix('.service')}*"
        for word in words
        if word.startswith("slurm-ft-") and "/" not in word
    ]
    ours += [word for word in words if word.startswith(("tools/", "contrib/", "bench/", "examples/"))]
    assert ours or words[:2] in (["install", "-d"], ["systemctl", "restart"]), f"`{command}` names nothing of ours"
    assert [name for name in ours if not list(ROOT.glob(name))] == []


def by_its_extras(command: str) -> None:
    """pip: the extras exist, and what is installed is this package."""
    words = shlex.split(command, comments=True)
    known = metadata("slurm_ft").get_all("Provides-Extra") or []
    asked = {extra for word in words for found in re.findall(r"\[([a-z,]+)\]", word) for extra in found.split(",")}
    assert asked <= set(known)
    assert words[1] in ("install", "download", "wheel"), command


def by_its_kind(command: str) -> None:
    """python: a module, a script of ours, or the user's own training."""
    words = shlex.split(command, comments=True)
    module = words[words.index("-m") + 1] if "-m" in words else ""
    mine = [word for word in words if word.endswith(".py") and "/" in word]
    assert module in ("", "venv", "pip", "datastates.validator", "build"), command
    assert [name for name in mine if not (ROOT / name).exists()] == []


def by_the_reader_of_kernel_lines(command: str) -> None:
    """echo: a line that the sensor of the kernel log understands."""
    line = re.search(r'"(.*)"', command)
    assert line, command
    assert parse_line(line[1].replace("$GPU", "0000:3b:00")), command


def by_the_shell(command: str) -> None:
    """Slurm's and the shell's own: only the spelling."""
    subprocess.run(["/bin/bash", "-n", "-c", command], check=True)


WAYS: dict[str, Callable[[str], None]] = {
    "slurm-ft": by_its_parser,
    "make": by_a_dry_run,
    **dict.fromkeys(("cp", "install", "systemctl", "sbatch", "chroot.sh"), by_its_files),
    "pip": by_its_extras,
    **dict.fromkeys(("python", "python3", "torchrun", "deepspeed", "accelerate"), by_its_kind),
    "echo": by_the_reader_of_kernel_lines,
    **dict.fromkeys(
        ("export", "eval", "scontrol", "squeue", "srun", "scancel", "sleep", "touch", "ln", "mv"), by_the_shell
    ),
}
FOUND = [(page, command) for page in PAGES for command in commands_of(page) if page.name not in ELSEWHERE]


def way_of(command: str) -> Callable[[str], None] | None:
    if "$(slurm-ft " in command:
        return by_its_parser
    return WAYS.get(program_of(command))


@pytest.mark.parametrize(("page", "command"), FOUND, ids=[f"{page.name}: {command[:60]}" for page, command in FOUND])
def test_a_command_is_what_it_says(page: Path, command: str) -> None:
    way = way_of(command)
    assert way is not None, f"{page.name}: `{command}`: nobody checks this kind: see WAYS"
    way(command)


def test_there_are_commands_of_most_kinds() -> None:
    used = {way.__name__ for _, command in FOUND if (way := way_of(command))}
    assert {way.__name__ for way in WAYS.values()} - used <= {"by_the_reader_of_kernel_lines"}
    assert len(FOUND) > 30


@pytest.mark.parametrize("page", ELSEWHERE)
def test_a_page_that_runs_elsewhere_does(page: str) -> None:
    assert f"docs/{page}" in (ROOT / ELSEWHERE[page]).read_text()


def options_of(name: str) -> set[str]:
    """All options of a command and of its subcommands."""
    parsers, found = [parser_of(name, manual=False)], set[str]()
    for parser in parsers:
        for action in parser._actions:
            found |= set(action.option_strings)
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_command_within_a_sentence_exists_with_its_options(page: Path) -> None:
    spans = [span.split() for span in re.findall(r"`slurm-ft ([a-z][^`]*)`", page.read_text().replace("\n", " "))]
    assert sorted({words[0] for words in spans} - set(COMMANDS)) == []
    ours = [
        (words[0], word.partition("=")[0]) for words in spans for word in words[: _end(words)] if word.startswith("--")
    ]
    assert [(name, option) for name, option in ours if option.rstrip("…,") not in options_of(name)] == []


def _end(words: list[str]) -> int:
    """Where the user's own command begins."""
    return words.index("--") if "--" in words else len(words)


EXAMPLES = [example for page in manual.PAGES.values() for example, _ in page.examples]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_a_help_is_taken_by_its_parser(example: str) -> None:
    by_its_parser(example)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_help_has_a_summary_examples_exit_codes_and_files(name: str) -> None:
    text = parser_of(name).format_help()
    assert re.search(r"^[A-Z].*\.$", text, re.MULTILINE)
    assert [part for part in ("examples:", "files:") if part not in text] == []
    assert re.search(r"(?i)exit codes?\b", text)
    assert f"slurm-ft {name}" in text.partition("examples:")[2]

"""`slurm-ft check` reads a script as the real sbatch does: both are given the same lines."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from slurm_ft.submission.script import read
from slurm_ft.submission.settings import Place, Word, parse
from slurm_ft.submission.words import UnreadableLineError, words

if TYPE_CHECKING:
    from slurm_ft.lab import Lab

FOUND = re.compile(r'Found in script, argument "(.*)"$')
OPTION = re.compile(r"^sbatch: ([a-z-]+) +: (.*)$")
READABLE = [
    r'#SBATCH -J"a b" --comment="x y" # c',
    "#SBATCH --open=append --time 10 -N2 -n 4#x",
    "#SBATCH\t--comment='a \"b\" # c'",
    r"#SBATCH --comment=a\#b\"c\\d --mem=1",
    r"#SBATCH --comment='a\'b'",
    "#SBATCH--comment=x",
    "#SBATCH --comment\n#SBATCH x",
    "#SBATCH --comment='' -J x",
    "#SBATCH -HJfoo\n#SBATCH -J=foo",
    "#SBATCH --req --nice --comment y",
    "#SBATCH --requeue --no-requeue",
    "#SBATCH -J x\u00a0y",
    "\n# x\n   # y\n#SBATCH --comment=x\nset -e # z\n#SBATCH --comment=late",
    "##SBATCH --comment=x\n #SBATCH --comment=y",
    "#SBATCH --signal=B:TERM@60 -o /tmp/x -e /dev/null --export NONE -t 2-0",
    "#SLURM --comment=x",
]
REFUSED = [
    "#SBATCH foo", '#SBATCH --comment="x', "#SBATCH : x", "#SBATCH --no=x", "#SBATCH --hold=x", "#SBATCH -z",
    "#SBATCH -- -J x", '#SBATCH --comment "" -J x', "#SBATCHX --comment=x", "#SBATCH -k off",
]  # fmt: skip


def sbatch(lab: Lab, text: str) -> tuple[int, str]:
    script = lab.shared / "check.sh"
    script.write_text(text)
    done = subprocess.run(
        [str(lab.slurm.bin / "sbatch"), "-vvv", "--test-only", str(script)],
        env=lab.environment(lab.spec.user), cwd=lab.shared, user=lab.spec.user,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize("lines", READABLE)
def test_the_words_and_the_options_are_those_of_sbatch(lab: Lab, lines: str) -> None:
    text = f"#!/bin/sh\n{lines}\n"
    _, said = sbatch(lab, text)
    found = read(text)
    assert found.problems == ()
    seen = [match[1] for line in said.splitlines() if (match := FOUND.search(line))]
    settings, _ = parse(Word(word, Place()) for word in seen)
    assert {name: one.value for name, one in settings.items()} == {
        name: one.value for name, one in found.settings.items()
    }
    in_force = {match[1] for line in said.splitlines() if (match := OPTION.match(line))} - {"verbose", "test-only"}
    requeue = {"requeue", "no-requeue"}
    assert in_force - requeue == set(found.settings) - requeue
    assert bool(in_force & requeue) is ("requeue" in found.settings)


@pytest.mark.parametrize("line", REFUSED)
def test_what_sbatch_refuses_is_an_error(lab: Lab, line: str) -> None:
    text = f"#!/bin/sh\n{line}\n"
    code, said = sbatch(lab, text)
    assert (code != 0, "Traceback" in said) == (True, False)
    assert [problem.place for problem in read(text).problems][:1] == [Place(2)]


@pytest.mark.parametrize("text", ["echo no interpreter\n", "#!/bin/sh\r\ntrue\r\n", "\n#!/bin/sh\n"])
def test_what_is_no_batch_script_is_an_error(lab: Lab, text: str) -> None:
    assert sbatch(lab, text)[0] != 0
    assert read(text).problems != ()


@pytest.mark.parametrize("line", [line for line in READABLE if "\n" not in line and line.startswith("#SBATCH ")])
def test_the_words_of_one_line_are_those_of_sbatch(lab: Lab, line: str) -> None:
    _, said = sbatch(lab, f"#!/bin/sh\n{line}\n")
    seen = [match[1] for row in said.splitlines() if (match := FOUND.search(row))]
    try:
        assert list(words(line.removeprefix("#SBATCH"))) == seen
    except UnreadableLineError:
        assert seen == []

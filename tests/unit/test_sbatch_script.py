"""Reading #SBATCH lines as sbatch does. tests/slurm/test_check.py asks sbatch itself about the same lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.submission.options import LONG, SHORT, VARIABLES
from slurm_ft.submission.script import Script, read, with_others
from slurm_ft.submission.settings import Place
from slurm_ft.submission.words import UnreadableLineError, words


def script(*lines: str) -> Script:
    return read("\n".join(("#!/bin/bash", *lines)))


def values(found: Script) -> dict[str, str]:
    return {name: setting.value for name, setting in found.settings.items()}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", []),
        (" --comment=x", ["--comment=x"]),
        ("--comment=x", ["--comment=x"]),
        ('\t-J"a b" -t 5 # why', ["-Ja b", "-t", "5"]),
        ("--comment='a \"b\" # c' -n 4#x", ['--comment=a "b" # c', "-n", "4"]),
        (r"--comment=a\#b\"c", ['--comment=a#b"c']),
        (r"'a\'b' c\ d", ["a'b", "c d"]),
        (r"x\\y", [r"x\y"]),
        ('--comment "" --requeue', ["--comment"]),
        ("--comment='' --requeue", ["--comment=", "--requeue"]),
        ("-J a\u00a0b", ["-J", "a\u00a0b"]),
    ],
)
def test_the_words_of_a_line(line: str, expected: list[str]) -> None:
    assert list(words(line)) == expected


@pytest.mark.parametrize("line", ['--comment="x', "--comment='x\"", ": x"])
def test_a_line_at_which_sbatch_gives_up(line: str) -> None:
    with pytest.raises(UnreadableLineError):
        list(words(line))


@given(st.lists(st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]), min_size=1), max_size=4))
def test_what_is_quoted_comes_back(texts: list[str]) -> None:
    quoted = ('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in texts)
    assert list(words(" " + " ".join(quoted))) == texts


@given(st.text())
def test_no_script_is_too_odd_to_read(text: str) -> None:
    for whole in (text, "#!/bin/sh\n#SBATCH " + text, "#!/bin/sh\n#SBATCH --comment=" + text):
        found = read(whole)
        assert all(problem.place.line for problem in (*found.problems, *found.ignored))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["#SBATCH --open=append --time 10"], {"open-mode": "append", "time": "10"}),
        (["#SBATCH -HJfoo -N2", "#SBATCH -J=foo"], {"hold": "", "job-name": "=foo", "nodes": "2"}),
        (["#SBATCH --comment", "#SBATCH x"], {"comment": "x"}),
        (["#SBATCH --requeue", "#SBATCH --no-requeue"], {"requeue": "no"}),
        (["#SBATCH --no-requeue --requeue=expedite"], {"requeue": "expedite"}),
        (["#SBATCH --req"], {"requeue": "yes"}),
        (["#SBATCH --nice --exclusive=user -k"], {"nice": "", "exclusive": "user", "no-kill": ""}),
        (["", "# a comment", "   # another", "#SLURM --mem=1", "set -e", "#SBATCH -J late"], {"mem": "1"}),
        (["#SBATCH -J a", "#SBATCH hetjob", "#SBATCH -J b"], {"job-name": "a"}),
        (["##SBATCH -J a", " #SBATCH -J b"], {}),
        (["#SBATCH --container-image=x --container-mounts y -J a"], {"job-name": "a"}),
    ],
)
def test_the_options_of_a_script(lines: list[str], expected: dict[str, str]) -> None:
    found = script(*lines)
    assert (values(found), found.problems) == (expected, ())


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("#SBATCH foo", "'foo' is no option"),
        ("#SBATCH --no=x", "--no-kill, --no-requeue, --nodefile, --nodelist, --nodes"),
        ("#SBATCH --hold=x", "--hold takes no value"),
        ("#SBATCH --comment", "--comment lacks its value"),
        ("#SBATCH -z", "no option -z"),
        ("#SBATCH -- -J x", "'-J' is no option"),
        ('#SBATCH --comment="x', "not closed"),
        ("#SBATCH -J x\r", "DOS line ends"),
    ],
)
def test_what_sbatch_refuses_is_said_with_its_line(line: str, what: str) -> None:
    found = script("# a comment", line + ("\n" if line.endswith("\r") else ""))
    assert what in found.problems[0].what
    assert found.problems[0].place == Place(3)


def test_a_script_without_an_interpreter() -> None:
    assert "#!" in read("#SBATCH -J x\n").problems[0].what
    assert read("#SBATCH -J x\n").problems[0].place == Place(1)


@pytest.mark.parametrize("line", ["# SBATCH --requeue", "#sbatch --requeue", "  #SBATCH --requeue", "#Sbatch -J x"])
def test_a_comment_that_was_meant_as_options_is_told(line: str) -> None:
    assert [problem.place for problem in script(line).ignored] == [Place(2)]


@pytest.mark.parametrize("line", ["##SBATCH --requeue", "# SBATCH lines follow", "#SBATCH --requeue"])
def test_a_comment_that_was_meant_as_one_is_not(line: str) -> None:
    assert script(line).ignored == ()


def test_options_behind_the_first_command_are_told() -> None:
    found = script("#SBATCH -J a", "set -e", "", "#SBATCH --requeue")
    assert [(one.place.line, "in line 3" in one.what) for one in found.ignored] == [(5, True)]
    assert found.body == ((3, "set -e"), (4, ""), (5, "#SBATCH --requeue"))


def test_the_command_line_wins_over_the_environment_and_that_over_the_script() -> None:
    found = script("#SBATCH --signal=A --output=a --requeue --time=1")
    environ = {"SBATCH_SIGNAL": "B", "SBATCH_OUTPUT": "b", "SBATCH_NO_REQUEUE": "yes", "SLURM_TIME": "9"}
    whole = with_others(found, environ, ["--signal", "C"])
    assert values(whole) == {"signal": "C", "output": "b", "requeue": "no", "time": "1"}
    places = {name: setting.place for name, setting in whole.settings.items()}
    assert places["signal"].name == "the command line"
    assert places["output"] == Place(name="SBATCH_OUTPUT")


@pytest.mark.parametrize(
    ("value", "on"), [("", True), ("yes", True), ("1", True), ("0", False), ("no", False), ("²", False)]
)
def test_what_switches_an_option_of_the_environment_on(value: str, on: bool) -> None:
    assert ("requeue" in with_others(script(), {"SBATCH_REQUEUE": value}, []).settings) is on


def test_the_tables_fit_together() -> None:
    assert set(SHORT.values()) | set(VARIABLES.values()) <= set(LONG)

"""What of a script spoils a failover."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from slurm_ft.cli.main import main
from slurm_ft.config import Config, OptIn
from slurm_ft.submission import storage
from slurm_ft.submission.directories import directories
from slurm_ft.submission.rules import Finding, Level, Submission, check, time_limit
from slurm_ft.submission.script import read, with_others
from slurm_ft.submission.storage import Kind, Mount, kind_of, parse

TEMPLATES = sorted((Path(__file__).parents[2] / "sbatch_templates").glob("*.sbatch"))
GOOD = """\
#!/bin/bash
#SBATCH --comment="mine [slurm_ft limit=2]"
#SBATCH --requeue --open-mode=append --output=%x-%j.log
#SBATCH --signal=USR1@120 --time=1-0
export OUTPUT_DIR=/lustre/me/run1
exec slurm-ft run --output-dir "$OUTPUT_DIR" -- srun python train.py
"""
MOUNTS = (Mount("/", "ext4"), Mount("/lustre", "lustre"), Mount("/dev/shm", "tmpfs"), Mount("/data", "xfs"))


def findings(text: str, *arguments: str, config: Config = Config(), **environ: str) -> list[Finding]:  # noqa: B008
    script = with_others(read(text), environ, arguments)
    found = tuple(directories(script.body, environ, "/lustre/me"))
    return list(check(Submission(script, config, found, MOUNTS)))


def bad(text: str, *arguments: str, config: Config = Config(), **environ: str) -> list[tuple[str, str, int | None]]:  # noqa: B008
    found = findings(text, *arguments, config=config, **environ)
    return [(one.level.value, one.rule, one.place.line) for one in found if one.level is not Level.OK]


def test_a_good_script_has_nothing_to_mend() -> None:
    found = findings(GOOD)
    assert {one.level for one in found} == {Level.OK}
    assert [one.rule for one in found] == ["asks", "requeue", "open_mode", "signal", "resumes", "checkpoints"]
    assert all(one.fix == "" for one in found)


def test_a_plain_script_is_told_all_that_it_lacks() -> None:
    assert bad("#!/bin/bash\nsrun python train.py\n") == [
        ("error", "asks", None),
        ("warning", "requeue", None),
        ("warning", "open_mode", None),
        ("warning", "signal", None),
        ("warning", "resumes", None),
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("[slurm_ft limit=2]", "slurm_ft", ("error", "asks", 2)),
        ("[slurm_ft limit=2]", "[slurm-ft]", ("error", "asks", 2)),
        ("limit=2", "limit=9", ("warning", "asks", 2)),
        ("limit=2", "limit=0", ("warning", "asks", 2)),
        ("--requeue", "--no-requeue", ("error", "requeue", 3)),
        ("--open-mode=append", "--open-mode=truncate", ("warning", "open_mode", 3)),
        ("%x-%j.log", "/dev/null", ("warning", "output", 3)),
        ("%x-%j.log", "/tmp/%j.log", ("warning", "output", 3)),
        ("--output=%x-%j.log", "--array=1-9 --output=x.log", ("warning", "output", 3)),
        ("USR1@120", "USR1@0", ("warning", "signal", 4)),
        ("USR1@120", "USR1@x", ("warning", "signal", 4)),
        ("--time=1-0", "--time=2", ("warning", "signal", 4)),
        ("--time=1-0", "-w n1,n3 -x n[2-3]", ("error", "nodes", 4)),
        ("--time=1-0", "-w n1 -x n2", ("warning", "nodes", 4)),
        ("/lustre/me/run1", "/tmp/run1", ("error", "checkpoints", 5)),
        ("/lustre/me/run1", "/dev/shm/run1", ("error", "checkpoints", 5)),
        ("/lustre/me/run1", "$TMPDIR/run1", ("error", "checkpoints", 5)),
        ("/lustre/me/run1", "/data/run1", ("warning", "checkpoints", 5)),
        ("/lustre/me/run1", "/home/me/run1", ("warning", "checkpoints", 5)),
        ("exec slurm-ft run", "# slurm-ft run\nexec other", ("warning", "resumes", None)),
        ("export", "#SBATCH --mem=1\nexport", None),
        ("exec", "#SBATCH --time=1\nexec", ("warning", "ignored", 6)),
        ("#!/bin/bash", "# no interpreter", ("error", "readable", 1)),
        ("--requeue", "--requeue stray", ("error", "readable", 3)),
    ],
)
def test_each_rule(before: str, after: str, expected: tuple[str, str, int] | None) -> None:
    assert before in GOOD
    assert bad(GOOD.replace(before, after, 1)) == ([expected] if expected else [])


def test_what_the_environment_and_the_command_line_change() -> None:
    assert bad(GOOD, SBATCH_OPEN_MODE="truncate") == [("warning", "open_mode", None)]
    assert bad(GOOD, "--comment=mine") == [("error", "asks", None)]
    assert bad(GOOD.replace("/lustre/me/run1", "${OUTPUT_DIR:-runs}"), OUTPUT_DIR="/tmp/x") == [
        ("error", "checkpoints", 5)
    ]


def test_a_site_that_fails_over_all_jobs_needs_no_tag() -> None:
    text = GOOD.replace("[slurm_ft limit=2]", "")
    assert bad(text, config=Config(opt_in=OptIn.REQUEUE)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", 300), ("5:30", 330), ("1:00:00", 3600), ("1-0", 86400), ("1-2:30", 95400), ("0-0:0:7", 7),
        ("UNLIMITED", None), ("0", None), ("1:2:3:4", None), ("", None), ("-1", None),
    ],
)  # fmt: skip
def test_the_forms_of_a_time_limit(text: str, expected: int | None) -> None:
    assert time_limit(text) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["SAVE_DIR='x y'"], [("SAVE_DIR", "/w/x y", "")]),
        (["A=/a", 'export CKPT_DIR="$A/${B:-b}-$SLURM_JOB_ID"'], [("CKPT_DIR", "/a/b-0", "")]),
        (["OUTPUT_DIR=${OUTPUT_DIR:-$PWD/runs/${SLURM_JOB_NAME:-n}}", "x --save $OUTPUT_DIR"],
         [("OUTPUT_DIR", "/w/runs/n", ""), ("--save", "/w/runs/n", "")]),
        (["python t.py --output_dir=/o --save-path '/p q'"], [("--output_dir", "/o", ""), ("--save-path", "/p q", "")]),
        (["D=$TMPDIR/d", "x --save $D"], [("--save", "", "TMPDIR")]),
        (["TMPDIR=/shared", "x --save $TMPDIR/d"], [("--save", "/shared/d", "")]),
        (["x --save $(mktemp -d) --save $UNKNOWN/x --save $1"], [("--save", "", "")] * 3),
        (["# x --save /tmp", "OTHER=/tmp", "x --saved /tmp"], []),
        (["A=$B", "B=$A", "SAVE_DIR=$A"], [("SAVE_DIR", "", "")]),
    ],
)  # fmt: skip
def test_the_directories_that_a_script_names(lines: list[str], expected: list[tuple[str, str, str]]) -> None:
    found = directories(enumerate(lines, start=1), {"TMPDIR": "/tmp"}, "/w")
    assert [(one.name, one.path, one.node_local) for one in found] == expected


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/lustre/x", Kind.SHARED), ("/lustrex", Kind.DISK), ("/dev/shm", Kind.LOCAL), ("/tmp/x", Kind.LOCAL),
        ("/home", Kind.DISK), ("/tmpx", Kind.DISK), ("/data/x", Kind.DISK),
    ],
)  # fmt: skip
def test_what_a_directory_lies_on(path: str, kind: Kind) -> None:
    assert kind_of(path, MOUNTS)[0] is kind


def test_a_tmp_that_is_mounted_from_the_network_is_shared() -> None:
    assert kind_of("/tmp/x", [*MOUNTS, Mount("/tmp", "nfs4")])[0] is Kind.SHARED
    assert kind_of("/tmp/x", [Mount("/", "nfs4")])[0] is Kind.LOCAL  # a diskless node has another one
    assert kind_of("/x", [])[0] is Kind.SHARED  # nothing is known
    assert kind_of("/x/y", [Mount("/x", "nfs"), Mount("/x", "tmpfs")])[0] is Kind.LOCAL  # the later one hides the other


def test_the_mounts_of_this_machine() -> None:
    line = r"36 35 98:0 /mnt1 /mnt/my\040disk rw,noatime master:1 - ext4 /dev/root rw"
    assert list(parse(f"{line}\nno mount\n")) == [Mount("/mnt/my disk", "ext4")]
    assert any(mount.point == "/proc" for mount in storage.mounts())


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_the_templates_pass(template: Path) -> None:
    assert bad(template.read_text()) == []


class TestCommand:
    @pytest.fixture
    def script(self, tmp_path: Path) -> Path:
        path = tmp_path / "train.sbatch"
        path.write_text(GOOD)
        return path

    @pytest.fixture(autouse=True)
    def _mounts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(storage, "mounts", lambda: MOUNTS)

    def test_says_line_level_and_fix(self, script: Path, capsys: pytest.CaptureFixture[str]) -> None:
        script.write_text(GOOD.replace("--requeue", "--no-requeue"))
        assert main(["check", "-q", str(script)]) == 1
        assert capsys.readouterr().out == (
            f"{script}:3: error: --no-requeue: Slurm will not start the job again. Write --requeue instead\n"
            f"{script}: 1 error, 0 warnings\n"
        )

    def test_warnings_are_errors_where_asked_for(self, script: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = [str(script), "--", "--open-mode=truncate"]
        assert main(["check", *arguments]) == 0
        assert main(["check", "--strict", *arguments]) == 1
        assert "the command line: warning: --open-mode=truncate" in capsys.readouterr().out

    def test_json(self, script: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "--json", str(script), str(script)]) == 0
        first, second = map(json.loads, capsys.readouterr().out.splitlines())
        assert first == second
        assert (first["v"], first["errors"], first["warnings"]) == (1, 0, 0)
        assert first["findings"][0] == {
            "level": "ok", "rule": "asks", "line": 2, "from": "", "what": "asks for failover", "fix": "",
        }  # fmt: skip

    def test_the_directory_that_the_job_changes_to_counts(self, script: Path) -> None:
        script.write_text(GOOD.replace("/lustre/me/run1", "runs"))
        assert main(["check", str(script), "--", "--chdir=/lustre"]) == 0
        assert main(["check", str(script), "--", "-D", "/tmp"]) == 1

    def test_what_is_no_script_is_one_line(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(tmp_path / "missing")]) == 1
        assert main(["check", str(tmp_path)]) == 1
        (tmp_path / "binary").write_bytes(bytes(range(256)) * 40)
        assert main(["check", str(tmp_path / "binary")]) == 1
        with (tmp_path / "huge").open("wb") as file:
            file.truncate(5 << 20)
        assert main(["check", str(tmp_path / "huge")]) == 1
        error = capsys.readouterr().err
        assert "No such file" in error
        assert "Slurm takes no such script" in error
        assert "Traceback" not in error


def test_variables_that_double_each_other_are_not_followed() -> None:
    """Expanded, the last one would have 2**60 characters."""
    lines = ["A0=/lustre/x", *(f"A{n}=$A{n - 1}$A{n - 1}" for n in range(1, 60)), "OUTPUT_DIR=$A59", "SAVE_DIR=$A1"]
    found = list(directories(enumerate(lines, start=1), {}, "/lustre/me"))
    assert [(one.name, one.path) for one in found] == [("OUTPUT_DIR", ""), ("SAVE_DIR", "/lustre/x/lustre/x")]


def test_a_pipe_is_no_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody writes into it: reading would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    assert main(["check", str(tmp_path / "pipe")]) == 1
    assert main(["check", "/dev/zero"]) == 1
    assert capsys.readouterr().err.count("is no regular file") == 2


def test_a_nul_byte_is_an_error() -> None:
    assert bad(GOOD + "echo \0\n") == [("error", "readable", 7)]

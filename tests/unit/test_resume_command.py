"""`slurm-ft resume` as a batch script sees it: what a real shell makes of its output, and what the log says."""

from __future__ import annotations

import os
import pickle
import shlex
import subprocess
import sys
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.checkpoints import Actions, Level, ResumePoint, Search
from slurm_ft.checkpoints.finding import VALID
from slurm_ft.checkpoints.layouts import BY_NAME
from slurm_ft.cli.banner import JobInfo, ask_slurm, banner
from slurm_ft.cli.resume import assignments
from slurm_ft.launch.choice import EXTRAS, Choice
from slurm_ft.model import Ledger
from slurm_ft.status.view import Failovers

ROOT = Path(__file__).parents[2]

SLURM_FT = [sys.executable, "-m", "slurm_ft.cli.main"]

HOSTILE = [
    "plain",
    "two words",
    "it's",
    'say "hi"',
    "$(touch hacked)",
    "`touch hacked`",
    "a\nexport CKPT_LAST_STEP=666",
    "tab\tand \\ backslash",
    "; touch hacked #",
    "-n",
    "~",
    "*",
    "ünïcode",
    os.fsdecode(b"latin-\xe9"),
    "trailing newline\n",
]


def write_valid(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")


@pytest.fixture
def resume(tmp_path):
    """Run the command in a job's environment; `squeue` in `tmp_path/bin` stands for Slurm's."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()

    def run(directory, **environ):
        job = {"SLURM_JOB_ID": "123", "SLURM_JOB_NODELIST": "n2", "PATH": f"{bin_dir}:/usr/bin:/bin"}
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "slurm_ft.cli.main",
                "resume",
                "--framework",
                "pytorch",
                f"--output-dir={directory}",
            ],
            env={**job, "PYTHONPATH": str(ROOT), **environ},
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )

    return run


def put_squeue(tmp_path, text):
    program = tmp_path / "bin" / "squeue"
    program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    program.chmod(0o755)


def found(step, path):
    point = ResumePoint(step, path, "pytorch", VALID, Level.DEEP)
    return Search(path.parent, exists=True, layout=BY_NAME["pytorch"], point=point, rejected=())


def evaluate(text, tmp_path, shell="sh"):
    """Evaluate the text as the batch script does and return what a child then sees."""
    script = 'eval "$1"; exec /usr/bin/env -0'
    environ = {"CKPT_LAST_STEP": "99", "CKPT_LAST_PATH": "/old", "LC_ALL": "C"}
    done = subprocess.run(
        [shell, "-euc", script, shell, text], env=environ, cwd=tmp_path, capture_output=True, check=True
    )
    assert done.stderr == b""
    return dict(entry.split(b"=", 1) for entry in done.stdout.split(b"\0") if entry)


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("name", HOSTILE)
def test_any_directory_name_survives_the_shell(tmp_path, name, shell):
    text = assignments(Choice(found(120, tmp_path / name / "ckpt_120.pth"), Actions()))
    seen = evaluate(os.fsencode(text).rstrip(b"\n"), tmp_path, shell)  # $(…) drops the last newlines
    assert seen[b"CKPT_LAST_STEP"] == b"120"
    assert seen[b"CKPT_LAST_PATH"] == os.fsencode(tmp_path / name / "ckpt_120.pth")
    assert not (tmp_path / "hacked").exists()


@given(st.text(st.characters(blacklist_characters="\0/", blacklist_categories=["Cs"]), min_size=1))
def test_assignments_are_two_words_to_the_shell(name):
    path = Path("/") / name / "ckpt_1.pth"
    words = shlex.split(assignments(Choice(found(1, path), Actions())))
    assert words[:4] == ["export", "CKPT_LAST_STEP=1", "export", f"CKPT_LAST_PATH={path}"]
    assert words[5:10:2] == ["CKPT_LAYOUT=pytorch", "CKPT_VERDICT=valid", "CKPT_RESUME_ARGS="]
    assert words[10:] in ([], ["unset", *EXTRAS])  # what other frameworks' choices would set


@pytest.mark.parametrize("name", ["$(touch hacked) 'a' \"b\"\nexport CKPT_LAST_STEP=666", os.fsdecode(b"latin-\xe9")])
def test_whole_command_with_a_hostile_directory(resume, tmp_path, name):
    directory = tmp_path / name
    directory.mkdir()
    write_valid(directory / "ckpt_120.pth")
    done = resume(directory)
    seen = evaluate(done.stdout, tmp_path)
    assert seen[b"CKPT_LAST_PATH"] == os.fsencode(directory / "ckpt_120.pth")
    assert not (tmp_path / "hacked").exists()


def test_scratch_unsets_what_the_submission_left_behind(resume, tmp_path):
    done = resume(tmp_path / "output")
    assert done.returncode == 0
    assert not {b"CKPT_LAST_STEP", b"CKPT_LAST_PATH"} & evaluate(done.stdout, tmp_path).keys()
    assert f"no checkpoint in {tmp_path}/output yet: starting from scratch" in done.stderr.decode()


def test_none_valid_warns_and_names_each(resume, tmp_path):
    (tmp_path / "ckpt_5.pth").touch()
    (tmp_path / "ckpt_10.pth").write_text("text")
    done = resume(tmp_path)
    log = done.stderr.decode().splitlines()
    assert done.stdout.startswith(b"unset CKPT_LAST_STEP CKPT_LAST_PATH ")
    assert log[1].startswith("slurm_ft: passed over ckpt_10.pth (step 10): corrupt: ")
    assert log[2] == "slurm_ft: passed over ckpt_5.pth (step 5): incomplete: empty file"
    assert "WARNING: no valid checkpoint in" in log[3]
    assert "(ckpt_10.pth, ckpt_5.pth)" in log[3]


def test_missing_directory_in_a_later_attempt_is_pointed_out(resume, tmp_path):
    done = resume(tmp_path / "output", SLURM_RESTART_COUNT="1")
    assert done.returncode == 0
    assert "does not exist after restart 1" in done.stderr.decode()


def test_unverified_checkpoint_is_used_and_said_so(resume, tmp_path):
    (tmp_path / "ckpt_5.pth").write_bytes(
        b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {}, {}, []))
    )
    done = resume(tmp_path)
    assert b"CKPT_LAST_STEP=5" in done.stdout
    assert "ckpt_5.pth: written in torch's old pickle format" in done.stderr.decode()


class TestUnreadable:
    """Storage that does not answer has to end the batch script, in every form that people write."""

    @pytest.fixture
    def done(self, resume, tmp_path):
        (tmp_path / "output").write_text("a file where the directory should be")
        return resume(tmp_path / "output")

    def test_command_fails_and_says_what_to_do(self, done):
        log = done.stderr.decode()
        assert done.returncode == 74
        assert "resume impossible" in log
        assert "ENOTDIR" in log
        assert "requeue" in log

    @pytest.mark.parametrize("options", ["-c", "-ec"])
    def test_one_line_eval_stops_the_script(self, done, options):
        script = 'eval "$1"; echo training'
        shell = subprocess.run(["sh", options, script, "sh", done.stdout], capture_output=True, check=False)
        assert (shell.returncode, shell.stdout) == (74, b"")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_directory_of_another_user_is_unreadable_not_empty(tmp_path):
    directory = tmp_path / "output"
    directory.mkdir(mode=0o700)
    # After the imports: the checkout itself may be closed to others.
    become_nobody = "os.setgid(65534); os.setuid(65534); sys.exit(main.main())"
    code = f"import os, sys; from slurm_ft.cli import main, resume; {become_nobody}"
    done = subprocess.run(
        [sys.executable, "-c", code, "resume", f"--output-dir={directory}"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 74
    assert b"EACCES" in done.stderr


NOW = datetime(2026, 11, 29, 15, 40, 1, tzinfo=timezone.utc)
JOB = {"SLURM_JOB_ID": "123", "SLURM_JOB_NODELIST": "n2", "SLURM_RESTART_COUNT": "1"}


def info(excluded: str = "", count: int = 0, limit: int = 3, *, opted_in: bool = True) -> JobInfo:
    return JobInfo(excluded, Failovers(opted_in, count, limit, (), Ledger(""), ()))


class TestBanner:
    """The one line that opens an attempt."""

    def test_full_line(self):
        assert banner(JOB, info("n1", 1), "step 120", NOW) == (
            "==== slurm_ft job 123 attempt 2/4 · restart 1 · node(s) n2 · excluded n1 · resume step 120"
            " · 2026-11-29T15:40:01+00:00 ===="
        )

    def test_first_attempt_has_no_restart_count(self):
        assert "attempt 1/4 · restart 0 ·" in banner({"SLURM_JOB_ID": "1"}, info(), "from scratch", NOW)

    def test_a_preempted_attempt_spends_no_failover(self):
        assert "attempt 1/4 · restart 1 ·" in banner(JOB, info(), "step 1", NOW)

    def test_what_slurm_did_not_say_is_a_question_mark(self):
        line = banner(JOB, None, "step 1", NOW)
        assert "attempt ? " in line
        assert "excluded ? " in line

    def test_outside_a_job(self):
        line = banner({}, None, "from scratch", NOW)
        assert "job - attempt - · restart 0 · node(s) - · excluded - " in line

    def test_without_our_tag_failover_is_off(self):
        assert "attempt 1/- " in banner(JOB, info(opted_in=False), "step 1", NOW)

    def test_nothing_can_break_the_line(self):
        hostile = info("n1\n==== slurm_ft job 1 attempt 1/1")
        assert "\n" not in banner({**JOB, "SLURM_JOB_NODELIST": "n2\r\x1b[2K"}, hostile, "step 1", NOW)


class TestInsideOfSrun:
    """`srun slurm-ft run …` starts it once for each task; the log shows one banner."""

    @pytest.mark.parametrize(("number", "banners"), [("0", 1), ("1", 0)])
    def test_only_the_first_task_speaks(self, tmp_path, number, banners):
        step = {"SLURM_STEP_ID": "0", "SLURM_PROCID": number, "SLURM_STEP_NUM_TASKS": "2"}
        done = subprocess.run(
            [sys.executable, "-m", "slurm_ft.cli.main", "resume", f"--output-dir={tmp_path}"],
            env={"PATH": os.environ["PATH"], **step}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.startswith("unset CKPT_LAST_STEP")
        assert done.stderr.count("==== slurm_ft job") == banners
        assert ("each of 2 tasks chooses for itself" in done.stderr) is bool(banners)


# Answers the two questions as squeue does: the fields of -O each followed by the delimiter, and -o "%i %x".
SQUEUE = """
env > "$0.env"
printf '%s\\n' "$*" >> "$0.args"
case "$*" in *%x*) printf '123 %s\\n' "$EXCLUDED"; exit ;; esac
for format; do :; done
end=${format##*:}
set -- 123 123 train alice main RUNNING None n2 1 1 1 0 1 2 3 out "$COMMENT" "(null)" n2 "" N/A 1 1:00:00 x normal
for value; do
    printf '%s%s' "$value" "$end"
done
echo
"""


class TestAskingSlurm:
    """Two calls, bounded, that can fail in any way without harm."""

    @pytest.fixture
    def ask(self, tmp_path, monkeypatch):
        (tmp_path / "bin").mkdir()
        settings = tmp_path / "slurm_ft.yaml"
        settings.write_text(f"slurm_bin: {tmp_path}/bin\n")
        settings.chmod(0o644)
        monkeypatch.setenv("SLURM_FT_CONFIG", str(settings))
        monkeypatch.setattr("slurm_ft.cli.banner.ANSWER_SECONDS", 0.5)

        def run(**answers):
            fixed = [f"{name}={shlex.quote(answers.pop(name, ''))}\n" for name in ("EXCLUDED", "COMMENT")]
            put_squeue(tmp_path, "".join(fixed) + SQUEUE)
            return ask_slurm({"SLURM_JOB_ID": "123", **answers})

        return run

    def test_answer_with_any_comment_is_told_apart(self, ask):
        answer = ask(EXCLUDED="n[1-2]", COMMENT="a|b %x\nc [slurm_ft n=1/3]")
        assert answer is not None
        assert (answer.excluded, answer.failovers.count, answer.failovers.limit) == ("n[1-2]", 1, 3)

    def test_null_means_nothing(self, ask):
        answer = ask(EXCLUDED="(null)", COMMENT="(null)")
        assert answer is not None
        assert (answer.excluded, answer.failovers.opted_in) == ("", False)

    def test_array_task_is_addressed_by_its_task(self, tmp_path, ask):
        ask(SLURM_ARRAY_JOB_ID="120", SLURM_ARRAY_TASK_ID="4")
        assert "-j 120_4 " in (tmp_path / "bin" / "squeue.args").read_text()

    def test_users_squeue_defaults_do_not_apply(self, tmp_path, ask, monkeypatch):
        monkeypatch.setenv("SQUEUE_STATES", "PD")
        ask()
        assert "SQUEUE_STATES" not in (tmp_path / "bin" / "squeue.env").read_text()

    @pytest.mark.parametrize("text", ["exit 1", "echo nonsense", "kill -9 $$", "printf '\\377'", "exec sleep 9"])
    def test_failing_slurm_is_no_answer(self, tmp_path, ask, text):
        ask()
        put_squeue(tmp_path, text)
        assert ask_slurm({"SLURM_JOB_ID": "123"}) is None

    def test_no_squeue_or_no_job_is_no_answer(self, tmp_path, ask):
        ask()
        (tmp_path / "bin" / "squeue").unlink()
        assert ask_slurm({"SLURM_JOB_ID": "123"}) is None
        put_squeue(tmp_path, f"touch {tmp_path}/asked")
        assert ask_slurm({}) is None
        assert not (tmp_path / "asked").exists()

    def test_failing_slurm_does_not_fail_the_resume(self, tmp_path, resume):
        put_squeue(tmp_path, "exit 1")
        write_valid(tmp_path / "ckpt_5.pth")
        done = resume(tmp_path)
        assert done.returncode == 0
        assert "attempt ? · restart 0 · node(s) n2 · excluded ? · resume step 5 · " in done.stderr.decode()

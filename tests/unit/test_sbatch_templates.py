"""The batch scripts: clean, and with the lines that failover depends on."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TEMPLATES = sorted((Path(__file__).parents[2] / "sbatch_templates").glob("*.sbatch"))

FAKE_RESUME = """#!/bin/sh
echo "$@" > "$HERE/resume.args"
echo "${RESUME_OUTPUT-export CKPT_LAST_STEP=7}"
exit "${RESUME_CODE:-0}"
"""
FAKE_SRUN = """#!/bin/sh
printf '%s\\n' "$@" > "$HERE/srun.args"
env > "$HERE/srun.env"
exit "${SRUN_CODE:-0}"
"""


@pytest.fixture(params=TEMPLATES, ids=lambda path: path.name)
def template(request):
    return request.param


@pytest.fixture
def submit(tmp_path, template):
    """Run the template as a batch host does, with programs that note how they were called."""
    for name, text in (("slurm-ft", FAKE_RESUME), ("srun", FAKE_SRUN), ("scontrol", "#!/bin/sh\necho n2\necho n3\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)

    def run(*command, **environ):
        base = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HERE": str(tmp_path)}
        job = {"SLURM_JOB_ID": "123", "SLURM_JOB_NODELIST": "n[2-3]", "SLURM_JOB_NAME": "train"}
        return subprocess.run(
            ["bash", template, *command],
            env={**base, **job, **environ},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def noted_env(tmp_path):
    return dict(line.split("=", 1) for line in (tmp_path / "srun.env").read_text().splitlines() if "=" in line)


def test_there_are_templates():
    assert TEMPLATES


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing(template):
    done = subprocess.run(["shellcheck", template], capture_output=True, text=True, check=False)
    assert done.stdout == ""


@pytest.mark.parametrize("line", ['--comment="[slurm_ft]"', "--requeue", "--open-mode=append", "--output=%x-%j.log"])
def test_template_carries_what_failover_needs(template, line):
    assert f"#SBATCH {line}\n" in template.read_text()


def test_options_stand_before_the_first_command(template):
    """Slurm stops reading #SBATCH lines at the first command."""
    lines = template.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert not [line for line in lines[first:] if line.startswith("#SBATCH")]


def test_command_reaches_srun_word_for_word(submit, tmp_path):
    assert submit("python", "my train.py", "--name", "a 'b' $(c)", "").returncode == 0
    arguments = (tmp_path / "srun.args").read_text().split("\n")[:-1]
    assert arguments[-5:] == ["python", "my train.py", "--name", "a 'b' $(c)", ""]


def test_user_script_is_a_command_line(submit, tmp_path):
    submit(USER_SCRIPT="python 'my train.py' --lr 1")
    assert (tmp_path / "srun.args").read_text().endswith("bash\n-c\npython 'my train.py' --lr 1\n")


def test_training_sees_the_resume_step_and_the_rest(submit, tmp_path):
    submit("true", OUTPUT_DIR="/data/run 1", CHECKPOINT_VENDOR="/opt/vendor", CKPT_LAST_STEP="3")
    env = noted_env(tmp_path)
    assert (env["CKPT_LAST_STEP"], env["OUTPUT_DIR"], env["MASTER_ADDR"]) == ("7", "/data/run 1", "n2")
    assert (env["HF_DATASETS_OFFLINE"], env["PYTHONPATH"]) == ("1", "/opt/vendor")
    assert (tmp_path / "resume.args").read_text().endswith("--output-dir /data/run 1\n")


@pytest.mark.parametrize(
    ("vendor", "before", "after"), [("", None, None), ("", "/a", "/a"), ("/v", "/a:/b", "/v:/a:/b"), ("/v", "", "/v")]
)
def test_python_path_gets_no_empty_part(submit, tmp_path, vendor, before, after):
    submit("true", CHECKPOINT_VENDOR=vendor, **({} if before is None else {"PYTHONPATH": before}))
    assert noted_env(tmp_path).get("PYTHONPATH") == after


def test_default_output_directory_is_the_jobs_own(submit, tmp_path):
    submit("true")
    assert noted_env(tmp_path)["OUTPUT_DIR"] == f"{tmp_path}/runs/train-123"


@pytest.mark.parametrize("code", [0, 1, 7, 143])
def test_exit_code_of_the_training_is_the_jobs(submit, code):
    assert submit("true", SRUN_CODE=str(code)).returncode == code


@pytest.mark.parametrize("output", ["exit 74", "", "export CKPT_LAST_STEP=1"])
def test_failed_resume_starts_no_training(submit, tmp_path, output):
    assert submit("true", RESUME_OUTPUT=output, RESUME_CODE="74").returncode == 74
    assert not (tmp_path / "srun.args").exists()


def test_missing_program_is_named_and_starts_no_training(submit, tmp_path):
    done = submit("true", SLURM_FT_BIN="/opt/none/slurm-ft")
    assert done.returncode == 127
    assert "/opt/none/slurm-ft not found" in done.stderr
    assert not (tmp_path / "srun.args").exists()


def test_exported_variables_are_passed_on_whatever_the_submission_said(submit, tmp_path):
    submit("true", SLURM_EXPORT_ENV="NONE")
    assert "--export=ALL" in (tmp_path / "srun.args").read_text()
    assert os.environ.get("CKPT_LAST_STEP") is None

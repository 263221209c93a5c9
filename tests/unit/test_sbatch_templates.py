"""The batch scripts: clean, and with the lines that failover depends on."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import ClassVar

import pytest

from slurm_ft.checkpoints.layouts import BY_NAME

ROOT = Path(__file__).parents[2] / "sbatch_templates"
TEMPLATES = sorted(ROOT.glob("*.sbatch"))

# What the templates start, noting how it was called. `slurm-ft run` becomes its command: so does this.
FAKE_SLURM_FT = """#!/bin/sh
printf '%s\\n' "$@" > "$HERE/run.args"
while [ "$1" != -- ]; do shift; done
shift
[ "${RUN_CODE:-0}" = 0 ] || exit "$RUN_CODE"
export CKPT_LAST_STEP=7
exec "$@"
"""
FAKE_SRUN = """#!/bin/sh
printf '%s\\n' "$@" > "$HERE/srun.args"
env > "$HERE/srun.env"
while [ "${1#-}" != "$1" ]; do shift; done
[ "${SRUN_CODE:-0}" = 0 ] || exit "$SRUN_CODE"
SLURM_NODEID=0 exec "$@"
"""
FAKE_SCONTROL = """#!/bin/sh
echo "$*" >> "$HERE/scontrol.args"
case $2 in
hostnames) echo n2; echo n3 ;;
node) printf 'NodeName=%s Arch=x86_64\\n   NodeAddr=10.0.0.2 NodeHostName=%s Version=26.05\\n' "$3" "$3" ;;
esac
"""
FAKE_GETENT = '#!/bin/sh\n[ -z "${UNRESOLVED:-}" ]\n'
# The programs that the templates' tasks start.
LAUNCHERS = ("torchrun", "deepspeed", "accelerate", "python", "ray", "llamafactory-cli", "msrun")
FAKE_LAUNCHER = """#!/bin/sh
printf '%s\\n' "${0##*/}" "$@" > "$HERE/task.args"
env > "$HERE/task.env"
grep SigIgn /proc/$$/status > "$HERE/task.ignored"
for word in "$@"; do case $word in --hostfile=*) cat "${word#*=}" > "$HERE/hostfile" ;; esac; done
exit "${TASK_CODE:-0}"
"""


@pytest.fixture(params=TEMPLATES, ids=lambda path: path.name)
def template(request):
    return request.param


@pytest.fixture
def submit(tmp_path, template):
    """Run the template as a batch host does, with programs that note how they were called."""
    programs = {"slurm-ft": FAKE_SLURM_FT, "srun": FAKE_SRUN, "scontrol": FAKE_SCONTROL, "getent": FAKE_GETENT}
    for name, text in {**programs, **dict.fromkeys(LAUNCHERS, FAKE_LAUNCHER)}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)

    def run(*command, **environ):
        base = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HERE": str(tmp_path), "TMPDIR": str(tmp_path)}
        job = {"SLURM_JOB_ID": "123", "SLURM_JOB_NODELIST": "n[2-3]", "SLURM_JOB_NAME": "train"}
        more = {"SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_ON_NODE": "4"}
        return subprocess.run(
            ["bash", template, *command],
            env={**base, **job, **more, **environ},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def noted(tmp_path, name):
    return (tmp_path / name).read_text().split("\n")[:-1]


def noted_env(tmp_path, name="task.env"):
    return dict(line.split("=", 1) for line in noted(tmp_path, name) if "=" in line)


def test_there_is_one_for_every_launcher_and_framework():
    names = {path.name.removesuffix(".sbatch") for path in TEMPLATES}
    assert names == {
        "python",
        "torchrun",
        "deepspeed",
        "accelerate",
        "verl",
        "mindspeed",
        "llamafactory",
        "mindspore",
    }


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing(template):
    done = subprocess.run(["shellcheck", template], capture_output=True, text=True, check=False)
    assert done.stdout == ""


@pytest.mark.parametrize(
    "line",
    ['--comment="[slurm_ft]"', "--requeue", "--open-mode=append", "--output=%x-%j.log", "--signal=USR1@120"],
)
def test_template_carries_what_failover_needs(template, line):
    assert f"#SBATCH {line}\n" in template.read_text()


def test_options_stand_before_the_first_command(template):
    """Slurm stops reading #SBATCH lines at the first command."""
    lines = template.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert not [line for line in lines[first:] if line.startswith("#SBATCH")]


def test_what_is_common_is_the_same_in_all(template):
    """The templates stand alone, so they repeat a block each; it must not drift."""

    def common(path):
        text = path.read_text()
        failover = text[text.index("# --- failover") : text.index("# Where the training saves")]
        return failover + text[text.index("# --- the same for every training") : text.index("export MASTER_ADDR")]

    assert common(template) == common(TEMPLATES[0])


def test_words_reach_the_task_as_they_are(submit, tmp_path):
    words = ["my train.py", "--name", "a 'b' $(c)", "", "*"]
    assert submit("python", *words).returncode == 0
    found = noted(tmp_path, "task.args")
    start = found.index(words[0])
    assert found[start : start + len(words)] == words


def test_user_script_is_the_whole_command_line(submit, tmp_path):
    submit(USER_SCRIPT="python 'my train.py' --lr 1")
    assert noted(tmp_path, "task.args") == ["python", "my train.py", "--lr", "1"]


def test_a_command_behind_the_template_wins_over_user_script(submit, tmp_path):
    submit("python", "b.py", USER_SCRIPT="python a.py")
    assert "b.py" in noted(tmp_path, "task.args")


def test_training_gets_what_the_documents_set(submit, tmp_path):
    submit("python", "t.py", OUTPUT_DIR="/tmp/run 1", FRAMEWORK="hf")
    env = noted_env(tmp_path)
    assert (env["CKPT_LAST_STEP"], env["OUTPUT_DIR"], env["HF_DATASETS_OFFLINE"]) == ("7", "/tmp/run 1", "1")
    assert noted(tmp_path, "run.args")[:5] == ["run", "--framework", "hf", "--output-dir", "/tmp/run 1"]
    (Path("/tmp/run 1")).rmdir()


def test_the_framework_is_one_that_we_know(submit, tmp_path):
    submit("python", "t.py")
    framework = noted(tmp_path, "run.args")[2]
    assert framework == "auto" or framework in BY_NAME


def test_default_output_directory_is_the_jobs_own(submit, tmp_path):
    submit("python", "t.py")
    assert noted_env(tmp_path)["OUTPUT_DIR"] == f"{tmp_path}/runs/train-123"
    assert (tmp_path / "runs" / "train-123").is_dir()


def test_processes_meet_on_the_first_node_of_this_attempt(submit, tmp_path):
    submit("python", "t.py")
    env = noted_env(tmp_path)
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("n2", "20123")
    assert noted(tmp_path, "scontrol.args")[0] == "show hostnames n[2-3]"


def test_a_first_node_whose_name_does_not_resolve_is_met_by_its_address(submit, tmp_path):
    submit("python", "t.py", UNRESOLVED="yes")
    assert noted_env(tmp_path)["MASTER_ADDR"] == "10.0.0.2"
    assert noted(tmp_path, "scontrol.args")[1] == "show node n2"


def test_one_node_needs_no_name_and_a_name_can_be_given(submit, tmp_path):
    submit("python", "t.py", SLURM_JOB_NUM_NODES="1")
    assert noted_env(tmp_path)["MASTER_ADDR"] == "127.0.0.1"
    submit("python", "t.py", MASTER="10.0.0.1")
    assert noted_env(tmp_path)["MASTER_ADDR"] == "10.0.0.1"


def test_the_signal_before_the_time_limit_kills_no_launcher(submit, tmp_path):
    """torchrun, accelerate and the rest do not catch SIGUSR1: unhandled, it would end the training."""
    submit("python", "t.py")
    ignored = int((tmp_path / "task.ignored").read_text().split()[1], 16)
    assert ignored & 1 << (signal.SIGUSR1 - 1)


@pytest.mark.parametrize("code", [0, 1, 7, 143])
def test_exit_code_of_the_training_is_the_jobs(submit, code):
    assert submit("python", "t.py", SRUN_CODE=str(code)).returncode == code
    assert submit("python", "t.py", TASK_CODE=str(code)).returncode == code


def test_failed_resume_starts_no_training(submit, tmp_path):
    assert submit("python", "t.py", RUN_CODE="74").returncode == 74
    assert not (tmp_path / "srun.args").exists()


def test_missing_program_is_named_and_starts_no_training(submit, tmp_path):
    done = submit("python", "t.py", SLURM_FT_BIN="/opt/none/slurm-ft")
    assert done.returncode == 127
    assert "/opt/none/slurm-ft" in done.stderr
    assert not (tmp_path / "srun.args").exists()


def test_exported_variables_are_passed_on_whatever_the_submission_said(submit, tmp_path):
    submit("python", "t.py", SLURM_EXPORT_ENV="NONE")
    assert "--export=ALL" in noted(tmp_path, "srun.args")


class TestLaunchers:
    """What the task of two nodes with four GPUs each starts on its first node."""

    EXPECTED: ClassVar = {
        "torchrun": ["torchrun", "--nnodes=2", "--nproc-per-node=4", "--rdzv-backend=c10d", "--rdzv-endpoint=n2:20123"],
        "deepspeed": ["deepspeed", "--no_ssh", "--node_rank=0", "--master_addr=n2", "--master_port=20123"],
        "accelerate": ["accelerate", "launch", "--num_machines=2", "--machine_rank=0", "--num_processes=8"],
        "verl": ["trainer.nnodes=2", "trainer.n_gpus_per_node=4", "trainer.resume_mode=auto"],
        "mindspeed": ["torchrun", "--nnodes=2", "--save", "--load", "--rdzv-endpoint=n2:20123"],
        "llamafactory": ["llamafactory-cli", "train"],
        "mindspore": ["msrun", "--worker_num=8", "--local_worker_num=4", "--node_rank=0", "--master_addr=n2"],
        "python": ["python", "t.py"],
    }

    def test_they_know_the_nodes_of_this_attempt(self, submit, tmp_path, template):
        assert submit("python", "t.py", LAUNCHER_OPTIONS="--more x").returncode == 0
        words = noted(tmp_path, "task.args")
        name = template.name.removesuffix(".sbatch")
        assert [word for word in self.EXPECTED[name] if word not in words] == []
        if name not in ("python", "llamafactory"):
            assert "--more" in words
        if name == "deepspeed":
            assert noted(tmp_path, "hostfile") == ["n2 slots=4", "n3 slots=4"]
        if name == "llamafactory":
            env = noted_env(tmp_path)
            assert (env["NNODES"], env["NODE_RANK"], env["NPROC_PER_NODE"]) == ("2", "0", "4")

    @pytest.mark.parametrize("template", [ROOT / "accelerate.sbatch"], indirect=True, ids=["accelerate"])
    @pytest.mark.parametrize(
        ("nodes", "gpus", "options", "told"),
        [("2", "1", "", True), ("1", "1", "", False), ("2", "4", "", False), ("2", "1", "--use_fsdp", False)],
    )
    def test_accelerate_is_told_that_one_gpu_a_node_on_several_is_one_training(
        self, submit, tmp_path, nodes, gpus, options, told
    ):
        submit("t.py", SLURM_JOB_NUM_NODES=nodes, SLURM_GPUS_ON_NODE=gpus, LAUNCHER_OPTIONS=options, HOME=str(tmp_path))
        assert ("--multi_gpu" in noted(tmp_path, "task.args")) is told

    @pytest.mark.parametrize("template", [ROOT / "accelerate.sbatch"], indirect=True, ids=["accelerate"])
    def test_a_default_configuration_of_accelerates_decides_itself(self, submit, tmp_path):
        path = tmp_path / ".cache" / "huggingface" / "accelerate" / "default_config.yaml"
        path.parent.mkdir(parents=True)
        path.touch()
        submit("t.py", SLURM_GPUS_ON_NODE="1", HOME=str(tmp_path))
        assert "--multi_gpu" not in noted(tmp_path, "task.args")

    @pytest.mark.parametrize("template", [ROOT / "torchrun.sbatch"], indirect=True, ids=["torchrun"])
    def test_a_restart_does_not_meet_the_last_attempts_leftovers(self, submit, tmp_path):
        submit("t.py", SLURM_RESTART_COUNT="2")
        assert "--rdzv-id=123.2" in noted(tmp_path, "task.args")

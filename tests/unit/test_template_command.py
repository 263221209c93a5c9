from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

import pytest

from slurm_ft.cli import main, template
from slurm_ft.errors import SlurmFtError


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    template.configure(parser)
    return template.run(main.parse(parser, arguments))


def test_list_names_each_with_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    run("list")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert any(line.startswith("torchrun       A training started by torchrun") for line in lines)


def test_show_prints_the_file_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    run("show", "deepspeed")
    assert capsys.readouterr().out == (template.resources_dir() / "sbatch_templates" / "deepspeed.sbatch").read_text()


def test_a_spot_job_differs_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    run("show", "deepspeed")
    plain = capsys.readouterr().out.splitlines()
    run("show", "deepspeed", "--spot")
    spot = capsys.readouterr().out.splitlines()
    changed = [(a, b) for a, b in zip(plain, spot, strict=True) if a != b]
    assert changed == [("##SBATCH --qos=spot", "#SBATCH --qos=spot")]


@pytest.mark.parametrize("name", template.templates())
def test_new_writes_a_clean_script_with_the_settings(tmp_path: Path, name: str) -> None:
    path = tmp_path / "job.sbatch"
    options = ("--nodes=4", "--gpus=8", "--time=2-0", "--partition=big", "--qos=cheap", "--job-name=llm", "--cpus=16")
    directories = ("--output-dir=/scratch/my runs", "--framework=hf")
    assert run("new", name, str(path), *options, *directories, "--spot", "--", "train.py", "--name", "it's") == 0
    text = path.read_text()
    for line in ("nodes=4", "gres=gpu:8", "time=2-0", "partition=big", "qos=cheap", "job-name=llm", "cpus-per-task=16"):
        assert text.count(f"#SBATCH --{line}\n") == 1
    assert "FRAMEWORK=hf\n" in text
    assert "export OUTPUT_DIR='/scratch/my runs'\n" in text
    first = next(index for index, line in enumerate(text.splitlines()) if line and line[0] != "#")
    assert not [line for line in text.splitlines()[first:] if line.startswith("#SBATCH")]
    words = subprocess.run(
        ["bash", "-c", f'{_command_line(text)}; printf "%s\\n" "${{COMMAND[@]}}"'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert words.stdout.splitlines() == ["train.py", "--name", "it's"]
    if shutil.which("shellcheck"):
        assert subprocess.run(["shellcheck", path], capture_output=True, text=True, check=False).stdout == ""


def _command_line(text: str) -> str:
    line = next(line for line in text.splitlines() if line.startswith(("SCRIPT=(", "TRAIN_COMMAND=(")))
    return "COMMAND=" + line.partition("=")[2]


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "job.sbatch"
    path.write_text("mine")
    with pytest.raises(SlurmFtError, match="exists already"):
        run("new", "python", str(path))
    assert path.read_text() == "mine"


def test_an_unknown_template_names_the_known_ones() -> None:
    with pytest.raises(SlurmFtError, match="no template 'jax'") as raised:
        run("show", "jax")
    assert "torchrun" in raised.value.fix


@pytest.mark.parametrize("value", ["a b", "x\n#SBATCH --uid=0", "$(reboot)", ""])
def test_a_value_that_would_end_its_line_is_refused(tmp_path: Path, value: str) -> None:
    if not value:
        assert run("new", "python", str(tmp_path / "job"), f"--partition={value}") == 0
        return
    with pytest.raises(SlurmFtError, match="cannot stand in an #SBATCH line"):
        run("new", "python", str(tmp_path / "job"), f"--partition={value}")
    assert not (tmp_path / "job").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SlurmFtError, match="cannot be written"):
        run("new", "python", str(tmp_path / "none" / "job"))

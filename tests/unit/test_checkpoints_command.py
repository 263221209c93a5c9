"""`slurm-ft checkpoints` as a person and a program see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import checkpoint_trees as trees
import pytest
import torch

from slurm_ft.checkpoints import UnreadableCheckpointError
from slurm_ft.cli import main
from slurm_ft.cli.progress_bar import ProgressBar

ROOT = Path(__file__).parents[2]


@pytest.fixture
def output(tmp_path):
    path = tmp_path / "out"
    trees.hf(path, 9, world=2)
    os.truncate(trees.hf(path, 10, world=2) / "optimizer.pt", 100)
    return path


def checkpoints(*arguments):
    return main.main(["checkpoints", *map(str, arguments)])


def test_list_shows_each_with_its_verdict_newest_first(output, capsys):
    assert checkpoints("list", output) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["CHECKPOINT", "STEP", "TIME", "SIZE", "FRAMEWORK", "RANKS", "LEVEL", "VERDICT", "REASON"]
    assert first.startswith("checkpoint-10  10 ")
    assert "hf         2      quick  incomplete  optimizer.pt: truncated: the archive has no end record" in first
    assert second.endswith("hf         2      quick  valid       -")


def test_validate_fails_if_one_is_not_valid_and_names_the_state(output, capsys):
    assert checkpoints("validate", output) == 1
    text = capsys.readouterr().out
    assert "checkpoint-9   yes       yes        yes         yes" in text
    assert checkpoints("validate", output / "checkpoint-9", "--level", "deep") == 0


def test_one_checkpoint_that_is_a_file_can_be_named(tmp_path, capsys):
    path = trees.plain(tmp_path, 3)
    assert checkpoints("validate", path, "--level", "deep") == 0
    assert "ckpt_3.pth  3 " in capsys.readouterr().out


def test_missing_required_state_is_warned_about(tmp_path, capsys):
    torch.save({"net": trees.model(), "epoch": 3}, tmp_path / "ckpt_3.pth")
    assert checkpoints("validate", tmp_path) == 1
    text = capsys.readouterr().out
    assert "weights-only" in text
    assert "WARNING: ckpt_3.pth: no optimizer: required to go on with training" in text


def test_json_has_everything_and_stays_parsable(output, capsys):
    assert checkpoints("validate", output, "--json") == 1
    newest, older = json.loads(capsys.readouterr().out)["checkpoints"]
    assert (newest["step"], newest["verdict"], newest["level"]) == (10, "incomplete", "structural")
    assert (older["framework"], older["world_size"]) == ("hf", 2)
    assert older["states"]["optimizer"] == "optimizer.pt"


def test_nothing_there_is_said_with_its_own_exit_code(tmp_path, capsys):
    assert checkpoints("list", tmp_path) == 66
    assert capsys.readouterr().out == f"no checkpoint in {tmp_path}\n"


def test_what_cannot_be_read_is_a_row_and_an_exit_code(output, capsys, monkeypatch):
    def fail(path, _name):
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr("slurm_ft.checkpoints.content.opened", fail)
    assert checkpoints("list", output) == 74
    assert "unreadable" in capsys.readouterr().out


def test_directory_that_cannot_be_listed_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert checkpoints("list", tmp_path / "file") == UnreadableCheckpointError.exit_code
    assert "ENOTDIR" in capsys.readouterr().err


def test_hostile_names_stay_on_their_line(tmp_path, capsys):
    path = trees.hf(tmp_path, 3)
    (path / "evil\n\x1b[2Jmodel.safetensors").write_bytes(b"")
    assert checkpoints("list", tmp_path) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert len(text.splitlines()) == 2


def test_restore_moves_back_by_name_and_says_so(output, capsys):
    assert main.main(["resume", "--output-dir", str(output)]) == 0
    assert not (output / "checkpoint-10").exists()
    assert checkpoints("restore", output, "checkpoint-7") == 66
    assert checkpoints("restore", output, "checkpoint-10") == 0
    assert (output / "checkpoint-10" / "optimizer.pt").stat().st_size == 100
    assert checkpoints("restore", output) == 66
    assert "checkpoint-10 is back (optimizer.pt: truncated" in capsys.readouterr().out


def test_resume_fails_without_a_valid_one_if_asked(output, capfdbinary):
    os.truncate(output / "checkpoint-9" / "optimizer.pt", 5)
    assert main.main(["resume", "--output-dir", str(output), "--on-no-valid", "fail"]) == 65
    out, err = capfdbinary.readouterr()
    assert out == b"exit 65\n"
    assert b"no valid checkpoint in" in err
    assert (output / "checkpoint-10").exists()


def test_storage_that_hangs_ends_the_attempt_in_time(tmp_path, capfdbinary, monkeypatch):
    def hang(*_arguments):
        time.sleep(60)

    monkeypatch.setattr("slurm_ft.cli.resume.choose", hang)
    assert main.main(["resume", "--output-dir", str(tmp_path), "--timeout", "0.3"]) == 74
    out, err = capfdbinary.readouterr()
    assert out == b"exit 74\n"
    assert b"did not answer within 0 s" in err


def test_resume_records_the_choice_and_the_one_before(output, capfd):
    for _ in range(2):
        assert main.main(["resume", "--output-dir", str(output)]) == 0
    record = json.loads((output.parent / ".ft-state" / "out" / "resume.json").read_text())
    assert (record["step"], record["previous_step"], record["layout"]) == (9, 9, "hf")
    assert record["path"] == str(output / "checkpoint-9")


class Terminal:
    def __init__(self, *, tty):
        self.text, self.tty = "", tty

    def isatty(self):
        return self.tty

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def test_progress_is_a_bar_on_a_terminal_and_lines_in_a_log(monkeypatch):
    clock = iter(range(0, 1000, 6))
    monkeypatch.setattr("slurm_ft.cli.progress_bar.time.monotonic", lambda: next(clock))
    for tty in (True, False):
        stream = Terminal(tty=tty)
        bar = ProgressBar(stream)
        bar.start("checkpoint-1", 4 << 30)
        for _ in range(4):
            bar.advance(1 << 30)
        bar.stop()
        if tty:
            assert "[###############..............." in stream.text
            assert "\n" not in stream.text
        else:
            assert stream.text.splitlines()[0] == "slurm_ft: checking checkpoint-1: 50% of 4.0 GiB, 0.2 GiB/s"
            assert "\r" not in stream.text


def test_package_stands_on_its_own_under_another_name(tmp_path):
    """A training's Python has the vendor folder and nothing else: no slurm_ft, no site packages."""
    (tmp_path / "datastates").mkdir()
    (tmp_path / "datastates" / "__init__.py").touch()
    (tmp_path / "datastates" / "_checkpoints").symlink_to(ROOT / "slurm_ft" / "checkpoints")
    trees.hf(tmp_path / "out", 3)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from pathlib import Path\n"
        "from datastates._checkpoints import choose, Policy, Level\n"
        "import datastates._checkpoints.survey, datastates._checkpoints.verify_manifest\n"
        f"point = choose(Path({str(tmp_path / 'out')!r}), policy=Policy(level=Level.DEEP)).point\n"
        "assert point.step == 3 and point.level is Level.DEEP, point\n"
        "assert not [name for name in sys.modules if name.startswith(('slurm_ft', 'torch', 'numpy'))]\n"
    )
    done = subprocess.run([sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""

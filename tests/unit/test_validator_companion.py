"""The validator beside the training: the real one of the vendor library, and scripts that fail in its place."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from slurm_ft.launch import validator

LISTENS = """
import argparse, signal, socket
parser = argparse.ArgumentParser()
parser.add_argument("--socket")
server = socket.socket(socket.AF_UNIX)
server.bind(parser.parse_args().socket)
server.listen()
signal.pause()
"""


@pytest.fixture
def vendor(tmp_path: Path) -> Path:
    (tmp_path / "vendor" / "datastates").mkdir(parents=True)
    (tmp_path / "vendor" / "datastates" / "__init__.py").write_text("")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    return tmp_path / "vendor"


def start(vendor: Path | str, wait: float = 30.0) -> tuple[validator.Companion | None, list[str]]:
    lines: list[str] = []
    path = str(Path(vendor).parent / "bin")
    return validator.start({"CHECKPOINT_VENDOR": str(vendor), "PATH": path}, lines.append, wait), lines


def test_the_documented_lines_tell_of_its_start(vendor: Path) -> None:
    (vendor / "datastates" / "validator.py").write_text(LISTENS)
    companion, lines = start(vendor)
    assert companion is not None
    companion.process.kill()
    companion.process.wait()
    assert companion.socket.name == "stage.socket"
    assert companion.socket.parent.stat().st_mode & 0o077 == 0
    assert lines == [
        "[INFO] Concurrent Checkpoint library is installed",
        f"waiting for validator through {companion.socket}...",
        "validator is running....",
        "sidecar container is running and ready for training process to run!",
    ]


def test_the_real_one_answers_and_ends_when_told(vendor: Path) -> None:
    real = Path(validator.__file__).parents[1] / "vendor"
    lines: list[str] = []
    environ = {"CHECKPOINT_VENDOR": str(real), "PATH": str(vendor.parent / "bin")}
    companion = validator.start(environ, lines.append, 60.0)
    assert companion is not None, lines
    companion.process.terminate()
    assert companion.process.wait(60) == 0
    assert not companion.socket.exists()


def test_many_signals_at_once_end_it_too(vendor: Path) -> None:
    """The kernel's at its parent's end, Slurm's to the whole job: one came in the handler of another, and it hung."""
    real = Path(validator.__file__).parents[1] / "vendor"
    companion = validator.start({"CHECKPOINT_VENDOR": str(real), "PATH": str(vendor.parent / "bin")}, print, 60.0)
    assert companion is not None
    while companion.process.poll() is None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            companion.process.send_signal(number)
    assert companion.process.wait(60) in (0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)


def test_two_jobs_on_one_node_do_not_share_the_site_s_channel(
    vendor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validator, "CHANNEL", tmp_path)
    (vendor / "datastates" / "validator.py").write_text(LISTENS)
    first, second = start(vendor)[0], start(vendor)[0]
    assert first is not None
    assert second is not None
    for companion in (first, second):
        companion.process.kill()
        companion.process.wait()
    assert first.socket == tmp_path / "stage.socket"
    assert second.socket.parent != tmp_path


@pytest.mark.parametrize(("text", "wait"), [("raise SystemExit(3)", 30.0), ("import time; time.sleep(600)", 0.5)])
def test_without_an_answer_training_goes_on_with_a_warning(vendor: Path, text: str, wait: float) -> None:
    (vendor / "datastates" / "validator.py").write_text(text)
    companion, lines = start(vendor, wait)
    assert companion is None
    assert lines[-1].endswith("the validator did not answer in time: training goes on without it")


def test_a_library_without_one_is_only_named(vendor: Path) -> None:
    assert start(vendor) == (None, ["[INFO] Concurrent Checkpoint library is installed"])


@pytest.mark.parametrize("vendor_directory", ["", "/nonexistent"])
def test_without_a_library_nothing_is_said(vendor_directory: str) -> None:
    assert start(vendor_directory) == (None, [])

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from slurm_ft.sensors import bounded_process
from slurm_ft.sensors.bounded_process import run_bounded


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def test_takes_what_is_printed_until_the_end() -> None:
    output = run_bounded(sh("echo a; echo b >&2; cat; exit 3"), 10)
    assert (output.text, output.ended) == ("a\n", True)


def test_takes_the_errors_too_if_asked() -> None:
    assert run_bounded(sh("echo a; echo b >&2"), 10, errors_too=True).text == "a\nb\n"


def test_keeps_what_came_before_the_time_was_up() -> None:
    output = run_bounded(sh("echo a; exec sleep 60"), 0.5)
    assert (output.text, output.ended) == ("a\n", False)
    assert 0.5 <= output.took_s < 5


def test_takes_no_more_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_process, "MAX_BYTES", 100_000)
    output = run_bounded(["/usr/bin/yes"], 10)
    assert not output.ended
    assert len(output.text) < 200_000


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert run_bounded(sh(r"printf '\377'"), 10).text == "�"


def test_a_program_that_is_not_there_leaves_no_descriptor() -> None:
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(FileNotFoundError):
        run_bounded(["/nonexistent"], 1)
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_program_that_not_even_sigkill_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is stuck in a driver."""
    kept: list[int] = []
    kill = os.kill
    monkeypatch.setattr(os, "kill", lambda pid, _: kept.append(pid))
    start = time.monotonic()
    assert not run_bounded(["/bin/sleep", "60"], 0.2).ended
    assert time.monotonic() - start < 5
    (child,) = kept
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
    kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_the_child_gets_no_descriptor_of_ours(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w"):
        assert str(tmp_path) not in run_bounded(sh("ls -l /proc/$$/fd"), 10).text

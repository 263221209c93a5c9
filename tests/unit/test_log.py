"""The hooks' own log: private, and written on after a rotation."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_ft.config import Config
from slurm_ft.log import open_log


@pytest.fixture(autouse=True)
def _usual_umask() -> None:
    os.umask(0o022)


def test_nobody_but_owner_and_group_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    open_log(Config(log_file=path), "private").info("job 12 of alice")
    assert path.stat().st_mode & 0o777 == 0o640
    assert "job 12 of alice" in path.read_text()


def test_a_process_that_has_it_open_follows_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = open_log(Config(log_file=path), "rotated")
    log.info("before")
    path.rename(tmp_path / "log.1")
    log.info("after")
    assert ("before" in path.read_text(), "after" in path.read_text()) == (False, True)


@pytest.mark.skipif(
    "os.geteuid() != 0", reason="only root may write into somebody else's directory and give files away"
)
def test_one_that_root_makes_in_slurmusers_directory_is_slurmusers(tmp_path: Path) -> None:
    os.chown(tmp_path, 64030, 64030)
    open_log(Config(log_file=tmp_path / "log"), "given").info("by reconcile")
    assert (tmp_path / "log").stat().st_uid == 64030


def test_a_log_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    open_log(Config(log_file=tmp_path / "none" / "log"), "lost").info("said to nobody")

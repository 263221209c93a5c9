from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from slurm_ft.controller.job_lock import DIRECTORY, SLOTS, BusyError, job_lock


def test_a_second_one_waits_and_gives_up(tmp_path: Path) -> None:
    with job_lock(tmp_path, 12, 0) as held:
        assert held
        with pytest.raises(BusyError, match="job 12"), job_lock(tmp_path, 12, 0.1):
            pytest.fail("two at once")


def test_it_is_free_again_afterwards_and_for_other_jobs_all_along(tmp_path: Path) -> None:
    with job_lock(tmp_path, 12, 0), job_lock(tmp_path, 13, 0):
        pass
    with job_lock(tmp_path, 12, 0) as held:
        assert held


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    ready, announce = os.pipe()
    child = os.fork()
    if child == 0:
        with job_lock(tmp_path, 12, 0):
            os.write(announce, b".")
            time.sleep(60)
    os.read(ready, 1)
    with pytest.raises(BusyError), job_lock(tmp_path, 12, 0):
        pass
    os.kill(child, 9)
    os.waitpid(child, 0)
    with job_lock(tmp_path, 12, 0) as held:
        assert held
    os.close(ready)
    os.close(announce)


def test_where_there_can_be_no_lock_the_work_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with job_lock(tmp_path / "file", 12, 0) as held:
        assert not held


def test_lock_files_do_not_pile_up(tmp_path: Path) -> None:
    for raw_id in range(3 * SLOTS):
        with job_lock(tmp_path, raw_id, 0):
            pass
    assert len(list((tmp_path / DIRECTORY).iterdir())) == SLOTS


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_what_root_makes_is_the_state_directorys_owners(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with job_lock(tmp_path, 12, 0):
        pass
    directory = tmp_path / DIRECTORY
    assert {directory.stat().st_uid, next(directory.iterdir()).stat().st_uid} == {65534}

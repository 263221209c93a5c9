"""A stale lock hangs the next start for ever; one that is held must stay."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from slurm_ft.launch import extension_locks
from slurm_ft.launch.extension_locks import clear


def alone():
    return True


def with_others():
    return False


@pytest.fixture
def lock(tmp_path):
    path = tmp_path / ".cache" / "torch_extensions" / "py311_cpu" / "shm_comm" / "lock"
    path.parent.mkdir(parents=True)
    path.write_text("")
    return path


def test_a_stale_lock_goes(lock, tmp_path):
    locks = clear({"HOME": str(tmp_path)}, alone)
    assert locks.cleared == (lock,)
    assert not lock.exists()


def test_a_directory_of_the_users_own_is_looked_into(tmp_path):
    path = tmp_path / "extensions" / "cpu_adam" / "lock"
    path.parent.mkdir(parents=True)
    path.write_text("")
    assert clear({"TORCH_EXTENSIONS_DIR": str(tmp_path / "extensions")}, alone).cleared == (path,)


def test_a_lock_that_a_living_process_holds_stays(lock, tmp_path):
    """As torch holds it: the file stays open while it compiles."""
    text = "import os, sys; os.open(sys.argv[1], os.O_RDONLY); print(flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", text, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        locks = clear({"HOME": str(tmp_path)}, alone)
        assert locks.kept == ((lock, "a process on this node is compiling"),)
        assert lock.exists()
    finally:
        process.communicate(b"")
    assert clear({"HOME": str(tmp_path)}, alone).cleared == (lock,)


def test_with_another_job_about_only_an_old_lock_is_stale(lock, tmp_path):
    assert clear({"HOME": str(tmp_path)}, with_others).kept == ((lock, "another job of yours may be compiling"),)
    old = time.time() - 3600
    os.utime(lock, (old, old))
    assert clear({"HOME": str(tmp_path)}, with_others).cleared == (lock,)


def test_what_is_no_lock_of_torch_stays(lock, tmp_path):
    lock.unlink()
    lock.symlink_to(tmp_path / "precious")
    (tmp_path / "precious").write_text("x")
    other = lock.parent.parent / "directory" / "lock"
    other.mkdir(parents=True)
    assert clear({"HOME": str(tmp_path)}, alone) == extension_locks.Locks()
    assert (tmp_path / "precious").exists()


def test_another_users_lock_stays(lock, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: lock.stat().st_uid + 1)
    assert clear({"HOME": str(tmp_path)}, alone) == extension_locks.Locks()


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "/nonexistent"}, {"TORCH_EXTENSIONS_DIR": "/proc/1/x"}])
def test_where_there_is_nothing_nothing_happens(environ):
    assert clear(environ, alone) == extension_locks.Locks()

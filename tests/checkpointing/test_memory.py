"""How much host memory the pool may take: the setting is a ceiling, and so is the job's cgroup."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_ft.vendor.datastates._engine import memory
from slurm_ft.vendor.datastates._engine.hashing import CHUNK_BYTES
from slurm_ft.vendor.datastates._engine.memory import CGROUP, FREE_SHARE, GIB, ceiling, make_pool
from slurm_ft.vendor.datastates._engine.settings import parse

ROOT = Path(__file__).parents[2]
LIMIT = 1 << 30
ASK = "from slurm_ft.vendor.datastates._engine.memory import ceiling; print(ceiling(50, 1), ceiling(None, 4))"


@pytest.fixture
def cgroup():
    """A real memory cgroup of a GiB, of whichever version this machine has."""
    version_1 = CGROUP / "memory"
    path = (version_1 if version_1.is_dir() else CGROUP) / f"slurm_ft-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here ({error}); the test below reads stand-in files")
    try:
        limit = path / ("memory.limit_in_bytes" if version_1.is_dir() else "memory.max")
        if not limit.exists():
            pytest.skip("the memory controller is not handed down here; the test below reads stand-in files")
        limit.write_text(str(LIMIT))
        yield path
    finally:
        path.rmdir()


def test_a_real_cgroup_caps_the_pool(cgroup: Path) -> None:
    """In a process of its own: what it uses itself, a few MiB, counts against the limit."""
    enter = f'echo $$ > {cgroup}/cgroup.procs && exec {sys.executable} -c "$0"'
    done = subprocess.run(["/bin/sh", "-c", enter, ASK], cwd=ROOT, capture_output=True, text=True, check=True)
    alone, of_four = map(int, done.stdout.split())
    assert 0.8 * LIMIT * FREE_SHARE < alone <= LIMIT * FREE_SHARE
    assert of_four <= LIMIT * FREE_SHARE / 4


@pytest.mark.parametrize(
    ("line", "directory", "names"),
    [
        ("0::/slurm/job_7/step_0", "slurm/job_7", ("memory.max", "memory.current")),
        (
            "9:memory:/slurm/job_7/step_0",
            "memory/slurm/job_7",
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_a_limit_above_the_own_cgroup_counts_too(tmp_path, monkeypatch, line, directory, names) -> None:
    """Stand-in files: Slurm sets the job's limit one level above the step. Pages that nobody used lately are free."""
    group = tmp_path / directory
    (group / "step_0").mkdir(parents=True)
    for place, values in ((group, (LIMIT, LIMIT // 2)), (group / "step_0", ("max", LIMIT // 2))):
        for name, value in zip(names, values, strict=True):
            (place / name).write_text(f"{value}\n")
        (place / "memory.stat").write_text(f"anon 7\ninactive_file {LIMIT // 4}\n")
    (tmp_path / "self").write_text(f"{line}\n")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    monkeypatch.setattr(memory, "OWN_CGROUPS", tmp_path / "self")
    monkeypatch.setattr(memory, "_available", lambda: 1 << 50)
    assert ceiling(None, 1) == LIMIT * 3 // 4 * FREE_SHARE
    assert ceiling(50, 3) == LIMIT // 4 * FREE_SHARE
    assert ceiling(0.125, 1) == GIB // 8


def test_a_machine_without_cgroups_counts_its_free_memory(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(memory, "OWN_CGROUPS", tmp_path / "none")
    monkeypatch.setattr(memory, "_available", lambda: 8 * GIB)
    assert ceiling(50, 2) == 8 * GIB * FREE_SHARE / 2


def test_the_setting_is_a_ceiling_and_never_taken_ahead(training, make_engine) -> None:
    pool, scratch = make_pool(parse({"host_cache_size": 0.0625, "parser_threads": 3}))
    assert (pool.limit, pool.allocated) == (GIB // 16, 0)
    assert scratch.size == 3 * CHUNK_BYTES
    taken = [pool.take() for _ in range(9)]
    assert [buffer is None for buffer in taken] == [False] * 8 + [True]

"""From a training's own counts to the node's metrics: nothing but numbers gets through."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.checkpoints.counters import MOST_BYTES, CounterFile, Counters, parse
from slurm_ft.node import checkpoint_counters
from slurm_ft.node.checkpoint_counters import OUTLIVED, CheckpointCounters, make_directory, read_all, text

FOUR = Counters(committed=4, seconds=6.5, bytes=1200)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "checkpoints"
    make_directory(made)
    return made


def leave(directory: Path, counters: Counters, kind: str = "engine", job: str = "12") -> None:
    CounterFile(kind, {"SLURM_FT_COUNTERS": str(directory), "SLURM_JOB_ID": job}).write(counters)


def look(one: CheckpointCounters) -> str:
    one.due = 0.0
    assert one.tend() > 0
    return one.output.read_text()


def test_what_a_training_leaves_is_what_is_read(directory: Path) -> None:
    leave(directory, FOUR)
    assert [counters for _, counters in read_all(directory, time.time())] == [FOUR]


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_without_the_sites_directory_nothing_is_written(value: str, tmp_path: Path) -> None:
    os.chdir(tmp_path)
    CounterFile("engine", {"SLURM_FT_COUNTERS": value}).write(FOUR)
    assert list(tmp_path.rglob("*")) == []


def test_a_directory_that_is_gone_costs_the_training_nothing(tmp_path: Path) -> None:
    leave(tmp_path / "gone", FOUR)


def test_sums_grow_by_what_is_new_and_survive_the_end_of_a_job(directory: Path, tmp_path: Path) -> None:
    one = CheckpointCounters(directory, tmp_path / "x.prom", logging.getLogger("test"))
    leave(directory, FOUR)
    leave(directory, Counters(validated=3, invalid=1), "validator")
    assert "slurm_ft_checkpoints_committed_total 4.0" in look(one)
    leave(directory, FOUR.plus(Counters(committed=1, seconds=1.0)))
    shown = look(one)
    assert "slurm_ft_checkpoints_committed_total 5.0" in shown
    assert "slurm_ft_checkpoints_invalid_total 1.0" in shown
    for path in directory.iterdir():
        path.unlink()
    assert "slurm_ft_checkpoint_seconds_total 7.5" in look(one)
    leave(directory, Counters(committed=1), job="13")
    assert "slurm_ft_checkpoints_committed_total 6.0" in look(one)


def test_a_file_that_begins_anew_is_counted_from_nothing() -> None:
    assert Counters(committed=2).since(Counters(committed=5)) == Counters(committed=2)


def test_nobody_may_list_or_replace_what_others_left(directory: Path) -> None:
    assert directory.stat().st_mode & 0o7777 == 0o1733


def test_a_link_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkpoints").symlink_to("elsewhere")
    with pytest.raises(PermissionError):
        make_directory(tmp_path / "checkpoints")


def test_links_pipes_and_large_files_are_passed_over(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "shadow.json").write_text(json.dumps({"committed": 7}))
    (directory / "link.json").symlink_to(tmp_path / "shadow.json")
    os.mkfifo(directory / "pipe.json")
    (directory / "large.json").write_text('{"committed": 1}' + " " * MOST_BYTES)
    (directory / "folder.json").mkdir()
    leave(directory, FOUR)
    assert [counters for _, counters in read_all(directory, time.time())] == [FOUR]


def test_what_nobody_has_touched_for_a_week_is_removed(directory: Path) -> None:
    leave(directory, FOUR)
    assert list(read_all(directory, time.time() + OUTLIVED + 1)) == []
    assert list(directory.iterdir()) == []


NAMES = st.sampled_from(["committed", "bytes", "seconds", "x"])
PLAIN = st.none() | st.booleans() | st.floats() | st.integers() | st.text()


@given(st.text() | st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)).map(json.dumps))
def test_no_text_gets_anything_but_sane_numbers_through(content: str) -> None:
    found = parse(content)
    assert found is None or all(0 <= value <= 1e18 for value in (found.committed, found.bytes, found.seconds))


@pytest.mark.parametrize(
    "content",
    [
        "[" * 3000,
        "[]",
        '{"committed": true}',
        '{"bytes": -1}',
        '{"seconds": NaN}',
        '{"seconds": 1e400}',
        '{"bytes": "7"}',
    ],
)
def test_what_is_no_number_is_refused(content: str) -> None:
    assert parse(content) is None


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_say() -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text(FOUR), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_trouble_is_told_once_and_ends_nothing(
    directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = CheckpointCounters(directory, tmp_path / "no" / "x.prom", logging.getLogger("test"))
    for _ in range(2):
        one.due = 0.0
        one.tend()
    assert len([record for record in caplog.records if "x.prom" in record.message]) == 1
    assert checkpoint_counters.PAUSE == 60.0

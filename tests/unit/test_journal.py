from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_ft import journal
from slurm_ft.config import Config
from slurm_ft.log import open_log

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.dictionaries(st.text().filter(lambda key: key != "v"), json_values))
def test_every_entry_is_one_line_and_comes_back(tmp_path: Path, entry: dict[str, object]) -> None:
    before = journal.entries(tmp_path)
    journal.append(tmp_path, entry)
    assert journal.entries(tmp_path) == [*before, {"v": journal.SCHEMA_VERSION, **entry}]
    assert len((tmp_path / journal.FILE_NAME).read_bytes().splitlines()) == len(before) + 1


def test_a_line_torn_by_a_crash_is_passed_over(tmp_path: Path) -> None:
    journal.append(tmp_path, {"n": 1})
    with (tmp_path / journal.FILE_NAME).open("ab") as file:
        file.write(b'{"v":1,"n":\n\xff\xfe\n[1]\n5\n')
    journal.append(tmp_path, {"n": 2})
    assert [entry["n"] for entry in journal.entries(tmp_path)] == [1, 2]


def test_an_entry_behind_a_line_torn_without_its_end_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / journal.FILE_NAME).write_text('{"v":1,"n"')
    journal.append(tmp_path, {"n": 2})
    assert [entry["n"] for entry in journal.entries(tmp_path)] == [2]


def test_a_journal_that_was_never_written_is_empty(tmp_path: Path) -> None:
    assert journal.entries(tmp_path) == []


def test_strangers_cannot_read_it(tmp_path: Path) -> None:
    journal.append(tmp_path, {})
    assert (tmp_path / journal.FILE_NAME).stat().st_mode & 0o007 == 0


def test_a_missing_directory_is_made_and_closed_to_strangers(tmp_path: Path) -> None:
    journal.append(tmp_path / "missing", {"job": "1"})
    assert journal.entries(tmp_path / "missing")[0]["job"] == "1"
    assert (tmp_path / "missing").stat().st_mode & 0o007 == 0


@pytest.mark.usefixtures("_closed")
class TestLog:
    @pytest.fixture
    def _closed(self) -> Iterator[None]:
        yield
        open_log(Config(log_file=Path("/dev/null/none")), "hook")

    def test_writes_to_the_named_file(self, tmp_path: Path) -> None:
        open_log(Config(log_file=tmp_path / "log"), "hook").info("a \udcff line")
        assert (tmp_path / "log").read_text().endswith(" hook INFO a \\udcff line\n")

    def test_opened_twice_it_writes_once(self, tmp_path: Path) -> None:
        for _ in range(2):
            log = open_log(Config(log_file=tmp_path / "log"), "hook")
        log.info("once")
        assert len((tmp_path / "log").read_text().splitlines()) == 1

    @pytest.mark.parametrize("name", ["missing/log", "."])
    def test_a_log_that_cannot_be_opened_stops_nothing(self, tmp_path: Path, name: str) -> None:
        log = open_log(Config(log_file=tmp_path / name), "hook")
        log.error("lost")
        assert isinstance(log.handlers[0], logging.NullHandler)

    def test_a_disk_that_fills_up_prints_nothing(self, capfd: pytest.CaptureFixture[str]) -> None:
        log = open_log(Config(log_file=Path("/dev/full")), "hook")
        log.error("lost")
        assert capfd.readouterr() == ("", "")


def test_a_long_journal_is_read_from_its_end(tmp_path: Path) -> None:
    for number in range(50):
        journal.append(tmp_path, {"n": number})
    assert [entry["n"] for entry in journal.entries(tmp_path, tail=40)][-1] == 49
    assert len(journal.entries(tmp_path, tail=40)) < 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes files for others")
def test_a_journal_that_root_begins_is_its_directorys_owners(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    journal.append(tmp_path, {"what": "watch"})
    assert (tmp_path / journal.FILE_NAME).stat().st_uid == 65534

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_ft import journal
from slurm_ft.config import Config
from slurm_ft.journal_entry import Entry, Stage, from_json, to_json
from slurm_ft.log import open_log
from slurm_ft.model import Action, Decision, Domain, JobKey, JobState

texts = st.text(max_size=40)
decided = st.builds(
    Decision,
    action=st.sampled_from(Action),
    state=st.sampled_from(JobState),
    domain=st.sampled_from(Domain),
    cause=texts,
    count=st.integers(0, 99),
    limit=st.integers(0, 99),
    rule=texts,
    reason=texts,
    exclude=st.lists(texts, max_size=3).map(tuple),
    text=texts,
    step=st.none() | st.integers(-1, 10**18),
    saved=st.none() | st.integers(0, 10**11),
)
times = st.floats(0, 4e9)
any_entry = st.builds(
    Entry,
    at=times,
    stage=st.sampled_from(Stage),
    key=st.builds(JobKey, st.integers(0, 2**32), texts, st.integers(0, 99)),
    cluster=texts,
    run=texts,
    submitted=st.none() | times,
    mode=texts,
    node=texts,
    nodes=texts,
    started=st.none() | times,
    told=st.dictionaries(texts, texts, max_size=3),
    decision=st.none() | decided,
    detail=texts,
)


def entry(raw_id: int = 12, detail: str = "") -> Entry:
    return Entry(1.0, Stage.SEEN, JobKey(raw_id, str(raw_id), 0), detail=detail)


def details(state_dir: Path) -> list[str]:
    return [one.detail for one in journal.entries(state_dir)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(any_entry)
def test_every_entry_is_one_line_and_comes_back(tmp_path: Path, one: Entry) -> None:
    before = journal.entries(tmp_path)
    journal.append(tmp_path, one)
    assert journal.entries(tmp_path) == [*before, one]
    assert journal.entries(tmp_path, one.key.raw_id)[-1] == one
    assert len((tmp_path / journal.FILE_NAME).read_bytes().splitlines()) == len(before) + 1


@given(st.recursive(st.none() | st.integers() | texts, lambda value: st.dictionaries(texts, value) | st.lists(value)))
def test_no_json_crashes_the_reader(value: object) -> None:
    from_json(value)
    from_json({**to_json(entry()), "told": value})
    from_json({**to_json(entry()), "action": value})


def test_a_line_torn_by_a_crash_is_passed_over(tmp_path: Path) -> None:
    journal.append(tmp_path, entry(detail="one"))
    with (tmp_path / journal.FILE_NAME).open("ab") as file:
        file.write(b'{"v":1,"n":\n\xff\xfe\n[1]\n5\n{"v":9,"what":"of a newer version"}\n' + b"[" * 99999)
    journal.append(tmp_path, entry(detail="two"))
    assert details(tmp_path) == ["one", "two"]


def test_an_entry_behind_a_line_torn_without_its_end_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / journal.FILE_NAME).write_text('{"v":1,"n"')
    journal.append(tmp_path, entry(detail="two"))
    assert details(tmp_path) == ["two"]


def test_a_journal_that_was_never_written_is_empty(tmp_path: Path) -> None:
    assert journal.entries(tmp_path) == []


def test_strangers_cannot_read_it(tmp_path: Path) -> None:
    journal.append(tmp_path, entry())
    assert (tmp_path / journal.FILE_NAME).stat().st_mode & 0o007 == 0


def test_a_missing_directory_is_made_and_closed_to_strangers(tmp_path: Path) -> None:
    journal.append(tmp_path / "missing", entry(detail="first"))
    assert details(tmp_path / "missing") == ["first"]
    assert (tmp_path / "missing").stat().st_mode & 0o007 == 0


def test_entries_of_one_job_are_not_those_of_another_that_begins_alike(tmp_path: Path) -> None:
    for raw_id in (1, 12, 123):
        journal.append(tmp_path, entry(raw_id, detail=str(raw_id)))
    assert [one.detail for one in journal.entries(tmp_path, 12)] == ["12"]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=20), st.integers(0, 25))
def test_what_is_recent_and_what_is_of_one_job_is_found_among_the_rest(
    written: list[tuple[int, bool]], since: int
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # a few milliseconds each
        directory = Path(name)
        for number, (raw_id, torn) in enumerate(written):
            journal.append(directory, replace(entry(raw_id), at=float(number)), rotate_at=700)
            if torn:
                with (directory / journal.FILE_NAME).open("ab") as file:
                    file.write(b'{"v":2,"raw_id":1,')
        every = journal.entries(directory)
        assert journal.recent(directory, since) == [one for one in every if one.at >= since]
        for raw_id in range(4):
            assert journal.entries(directory, raw_id) == [one for one in every if one.key.raw_id == raw_id]


def test_a_journal_that_has_grown_is_rotated_and_still_read(tmp_path: Path) -> None:
    for number in range(30):
        journal.append(tmp_path, entry(detail=str(number)), rotate_at=2000)
    assert details(tmp_path)[-12:] == [str(number) for number in range(18, 30)]
    assert {path.name for path in tmp_path.iterdir()} == {journal.FILE_NAME, journal.OLD_NAME}
    assert all(path.stat().st_size < 2200 for path in tmp_path.iterdir())


def test_of_two_hooks_that_rotate_at_once_none_throws_the_history_away(tmp_path: Path) -> None:
    journal.append(tmp_path, entry(detail="old"))
    late = os.open(tmp_path / journal.FILE_NAME, os.O_RDWR)
    journal.append(tmp_path, entry(detail="rotates"), rotate_at=1)
    journal.append(tmp_path, entry(detail="new"))
    journal._rotate(tmp_path / journal.FILE_NAME, late)
    os.close(late)
    assert details(tmp_path) == ["old", "rotates", "new"]


def test_an_entry_that_a_full_disk_cuts_off_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, text: whole(descriptor, text[:5]))
    with pytest.raises(OSError, match="cut off"):
        journal.append(tmp_path, entry())
    monkeypatch.undo()
    journal.append(tmp_path, entry(detail="after"))
    assert details(tmp_path) == ["after"]


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes files for others")
def test_a_journal_that_root_begins_is_its_directorys_owners(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    journal.append(tmp_path, entry())
    assert (tmp_path / journal.FILE_NAME).stat().st_uid == 65534

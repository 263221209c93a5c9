"""Tables: fitted to a terminal, or for programs."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.model import JobState
from slurm_ft.status import fields, selection, table
from slurm_ft.status.table import Column, Screen, cut, delimited, escaped, fit, width

COLUMNS = (
    Column("JOBID", ["12", "13_4"], keep=100),
    Column("NAME", ["a-rather-long-name", "short"], least=8, keep=60),
    Column("STATE", ["Pending - failoverinprogress", "Running"], least=20, keep=95),
    Column("CAUSE", ["xid79", "-"], keep=80),
)


def test_with_room_for_all_nothing_is_cut() -> None:
    assert fit(COLUMNS, Screen(200)).lines == fit(COLUMNS).lines
    assert fit(COLUMNS).lines[1] == "12     a-rather-long-name  Pending - failoverinprogress  xid79"


def test_columns_give_way_by_being_cut_first_and_then_by_leaving() -> None:
    cut_ones = fit(COLUMNS, Screen(50))
    assert cut_ones.dropped == ()
    assert cut_ones.lines[1] == "12     a-rathe+  Pending - failoverinprogr+  xid79"
    fewer = fit(COLUMNS, Screen(40))
    assert fewer.dropped == ("NAME",)
    assert fewer.lines[1] == "12     Pending - failoverinprogr+  xid79"


def test_a_width_that_the_user_chose_is_kept() -> None:
    (line,) = fit([Column("STATE", ["Running"], width=4), Column("X", ["1"])], header=False).lines
    assert line == "Run+  1"


@given(room=st.integers(1, 120), cells=st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_no_line_is_ever_wider_than_the_terminal(room: int, cells: list[str]) -> None:
    shown = [table.shown(cell) for cell in cells]
    columns = [Column(f"C{at}", [cell], least=3 * (at % 2), keep=at) for at, cell in enumerate(shown)]
    assert all(width(line) <= room for line in fit(columns, Screen(room)).lines)


@given(st.text(max_size=30), st.integers(0, 20))
def test_what_is_cut_fits_and_says_so(text: str, room: int) -> None:
    short = cut(text, room)
    assert width(short) <= room
    assert short == text or room == 0 or short.endswith("+")


def test_chinese_names_take_two_columns_each() -> None:
    assert width("训练") == 4
    first, second = fit([Column("NAME", ["训练", "ab"]), Column("X", ["1", "2"])], header=False).lines
    assert (first, second) == ("训练  1", "ab    2")


def test_colours_do_not_count_as_width() -> None:
    columns = [Column("STATE", ["Running", "Failed"], styles=["32", "31"]), Column("X", ["1", "2"])]
    plain, coloured = fit(columns), fit(columns, Screen(80, colour=True))
    assert coloured.lines[1] == "\x1b[32mRunning\x1b[0m  1"
    assert [line.replace("\x1b[", "").partition("m")[2] for line in coloured.lines[2:]] == [
        "Failed\x1b[0m   2".replace("\x1b[", "")
    ]
    assert "\x1b" not in "".join(plain.lines)


@given(st.lists(st.lists(st.text(max_size=12), min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_program_gets_every_value_back(rows: list[list[str]]) -> None:
    rows = [[cell.encode("utf-8", "replace").decode() for cell in row] for row in rows]
    columns = [Column(f"C{at}", [row[at] for row in rows]) for at in range(3)]
    header, *lines = delimited(columns)
    assert header == "C0|C1|C2"
    assert [[unquote(cell) for cell in line.split("|")] for line in lines] == rows
    assert all(line.isprintable() for line in lines)


def test_bytes_that_are_no_text_survive_as_bytes() -> None:
    assert escaped("a\udcff|b%\n") == "a%FF%7Cb%25%0A"


class TestSelection:
    @pytest.mark.parametrize(
        ("text", "for_squeue", "ours"),
        [
            ("R,FAILED,pd", "FAILED,PENDING,RUNNING", set()),
            ("failoverinprogress", "", {JobState.FAILOVER_IN_PROGRESS}),
            ("R,MaxRetriesExceeded", "", {JobState.MAX_RETRIES_EXCEEDED}),
            ("all", "", set()),
            ("", "", set()),
        ],
    )
    def test_states(self, text: str, for_squeue: str, ours: set[JobState]) -> None:
        chosen = selection.states(text)
        assert (chosen.for_squeue, chosen.ours) == (for_squeue, ours)

    @pytest.mark.parametrize("text", ["X", "failover", "R,nosuch", "PENDING - failoverinprogress"])
    def test_an_unknown_state_is_named_with_those_there_are(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"no state is called .*failoverinprogress.*RUNNING \(R\)"):
            selection.states(text)

    def test_fields_with_widths(self) -> None:
        chosen = selection.fields("JobID,state:12")
        assert [(one.field.name, one.width) for one in chosen] == [("jobid", 0), ("state", 12)]
        assert [one.field.name for one in selection.fields("all")] == list(fields.ALL)
        assert [one.field.name for one in selection.fields("+evidence")] == [*fields.DEFAULT, "evidence"]

    @pytest.mark.parametrize("text", ["nosuch", "%i", "state:0", "state:x", "state:-3", "a b"])
    def test_a_field_that_is_none_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"jobid|name:width"):
            selection.fields(text)

    @given(st.text(max_size=20))
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        for reader in (selection.states, selection.fields, selection.order):
            with suppress(ValueError):
                reader(text)


@pytest.mark.parametrize(
    ("seconds", "shown", "old"),
    [
        (0, "0:00", "0s"),
        (65, "1:05", "65s"),
        (3723, "1:02:03", "62m"),
        (180000, "2-02:00:00", "2d"),
        (-5, "0:00", "0s"),
    ],
)
def test_durations_are_squeues_and_ages_are_short(seconds: float, shown: str, old: str) -> None:
    assert (fields.duration(seconds), fields.age(seconds)) == (shown, old)


def test_names_with_numbers_sort_by_the_numbers() -> None:
    assert sorted(["n10", "n2", "13_4", "13_10", "2"], key=fields.natural) == ["2", "13_4", "13_10", "n2", "n10"]

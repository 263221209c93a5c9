"""The table of what differs between Slurm's releases, and the readers that know every spelling in it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from slurm_ft.slurm import fields
from slurm_ft.slurm.fields import Difference

DIFFERENCES = [value for value in vars(fields).values() if isinstance(value, Difference)]


@pytest.mark.parametrize(
    ("version", "value"),
    [((20, 11, 9), "old"), ((22, 5, 8), "old"), ((24, 5, 1), "old"), ((24, 11, 0), "new"), ((26, 5), "new")],
)
def test_a_difference_holds_from_its_release_on(version: tuple[int, ...], value: str) -> None:
    assert Difference("x", (((22, 5), "old"), ((24, 11), "new"))).on(version) == value


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.what)
def test_each_row_is_in_order_and_says_something_new_each_time(difference: Difference[object]) -> None:
    releases = [release for release, _ in difference.since]
    values = [value for _, value in difference.since]
    assert releases == sorted(set(releases))
    assert all(value != newer for value, newer in pairwise(values))


@pytest.mark.parametrize("text", [text for _, text in fields.EXIT_CODE.since])
def test_every_releases_exit_code_is_read(text: str) -> None:
    assert fields.exit_status(text) == (3, 0)


@pytest.mark.parametrize("text", ["9", "0:9"])
def test_so_is_a_signal(text: str) -> None:
    assert fields.exit_status(text) == (0, 9)


@pytest.mark.parametrize(
    ("text", "ended"),
    [("1000", 1000.0), ("1001", 1001.0), ("1060", None), ("32536000", None), ("NONE", None), ("N/A", None), ("", None)],
)
def test_an_end_to_come_is_none(text: str, ended: float | None) -> None:
    assert fields.end_time(text, now=1000.0) == ended


def test_a_reason_without_its_details() -> None:
    names = [fields.reason_name(text) for _, text in fields.SIGNAL_REASON.since]
    assert names == ["JobLaunchFailure", "RaisedSignal"]
    assert fields.reason_name("") == ""

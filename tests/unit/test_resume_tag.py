from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.failover import comment_tag, resume_tag
from slurm_ft.failover.comment_tag import COMMENT_LIMIT, Tag
from slurm_ft.failover.resume_tag import RESERVE, ResumeMark


@pytest.mark.parametrize(
    ("comment", "mark"),
    [
        ("[slurm_ft.resume step=1200 attempt=1]", ResumeMark(1200, 1, 1)),
        ("[slurm_ft n=1/3] x [slurm_ft.resume step=none attempt=0] y", ResumeMark(None, 0, 0)),
        ("[slurm_ft.resume step=7 attempt=4 since=2 alert=same_step]", ResumeMark(7, 4, 2, "same_step")),
        ("[slurm_ft.resume step=7 attempt=4 saved=1764429940]", ResumeMark(7, 4, 4, saved=1764429940)),
        ("[slurm_ft.resume step=7 attempt=4 saved=-1]", ResumeMark(7, 4, 4)),
        (f"[slurm_ft.resume step=7 attempt=4 saved={'9' * 400}]", ResumeMark(7, 4, 4)),
        ("[slurm_ft.resume step=7 attempt=4 since=9]", ResumeMark(7, 4, 4)),  # forged: later than itself
        ("[slurm_ft.resume step=7 attempt=4 since=-1 alert=\x1b[2J]", None),  # brackets end the tag
    ],
)
def test_reads(comment: str, mark: ResumeMark | None) -> None:
    assert resume_tag.read(comment) == mark


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "[slurm_ft]",
        "[slurm_ft.resume]",
        "[slurm_ft.resume step=1]",
        "[slurm_ft.resume step= attempt=1]",
        "[slurm_ft.resume step=-1 attempt=1]",
        "[slurm_ft.resume step=٣ attempt=1]",
        "[slurm_ft.resume step=1 attempt=1e9]",
        f"[slurm_ft.resume step={'9' * 5000} attempt=1]",
    ],
)
def test_what_makes_no_sense_is_as_good_as_absent(comment: str) -> None:
    assert resume_tag.read(comment) is None


def test_the_two_tags_do_not_take_each_other_for_themselves() -> None:
    assert comment_tag.read("[slurm_ft.resume step=1 attempt=1]") is None
    written = resume_tag.write("[slurm_ft]", ResumeMark(1, 1, 1))
    assert written == "[slurm_ft] [slurm_ft.resume step=1 attempt=1]"
    again = comment_tag.write(written, Tag(1, 3, ("n1",), "xid79"))
    assert again == "[slurm_ft n=1/3 ex=n1 cause=xid79] [slurm_ft.resume step=1 attempt=1]"
    assert resume_tag.read(again) == ResumeMark(1, 1, 1)


@pytest.mark.parametrize(
    ("before", "step", "attempt", "expected"),
    [
        (None, 20, 0, ResumeMark(20, 0, 0)),
        (ResumeMark(20, 1, 1), 20, 2, ResumeMark(20, 2, 1)),
        (ResumeMark(20, 2, 1), 20, 3, ResumeMark(20, 3, 1)),
        (ResumeMark(20, 2, 1), 40, 3, ResumeMark(40, 3, 3)),
        (ResumeMark(None, 0, 0), None, 1, ResumeMark(None, 1, 0)),
        (ResumeMark(20, 9, 1), 20, 3, ResumeMark(20, 3, 3)),  # from a later attempt: forged
    ],
)
def test_attempts_in_a_row_from_one_step_are_counted(
    before: ResumeMark | None, step: int | None, attempt: int, expected: ResumeMark
) -> None:
    assert resume_tag.following(before, step, attempt) == expected


def test_attempts_without_progress() -> None:
    assert ResumeMark(20, 3, 1).without_progress == 2
    assert ResumeMark(20, 3, 3).without_progress == 0


def test_the_tag_shrinks_and_leaves_room_for_the_controllers() -> None:
    full = ResumeMark(20, 3, 1, "same_step")
    shortest = " [slurm_ft.resume step=20 attempt=3]"
    user = "x" * (COMMENT_LIMIT - RESERVE - len(shortest))
    assert resume_tag.write(user, full) == user + shortest
    assert resume_tag.write(user + "x", full) is None


def test_the_tag_gives_up_its_alert_then_the_time_then_since() -> None:
    full = ResumeMark(20, 3, 1, "same_step", 1764429940)
    fields = (" since=1", " saved=1764429940", " alert=same_step")
    for kept in range(4):
        tag = f" [slurm_ft.resume step=20 attempt=3{''.join(fields[:kept])}]"
        user = "x" * (COMMENT_LIMIT - RESERVE - len(tag))
        assert resume_tag.write(user, full) == user + tag


marks = st.builds(
    ResumeMark,
    step=st.none() | st.integers(0, 10**17),
    attempt=st.integers(50, 99),
    since=st.integers(0, 50),
    alert=st.sampled_from(["", "same_step", "restarted_from_zero"]),
    saved=st.none() | st.integers(0, 10**11 - 1),
)


@given(st.text(max_size=1100), st.text(max_size=20), marks, marks)
def test_any_foreign_text_survives_byte_for_byte(before: str, after: str, old: ResumeMark, new: ResumeMark) -> None:
    first = resume_tag.write(before, old)
    if resume_tag.read(before) is not None or "[slurm_ft.resume" in before or first is None:
        return
    written = resume_tag.write(first + after, new)
    if written is None:
        return
    assert comment_tag.size(written) <= COMMENT_LIMIT - RESERVE
    assert written.startswith(before)
    assert written.endswith(after)
    found = resume_tag.read(written)
    assert found is not None
    assert (found.step, found.attempt) == (new.step, new.attempt)


@given(st.text())
def test_no_text_crashes_the_reader(text: str) -> None:
    resume_tag.read(text)
    resume_tag.read(f"[slurm_ft.resume {text}]")

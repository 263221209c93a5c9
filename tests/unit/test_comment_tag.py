from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.failover import comment_tag
from slurm_ft.failover.comment_tag import COMMENT_LIMIT, Tag


@pytest.mark.parametrize(
    ("comment", "tag"),
    [
        ("[slurm_ft]", Tag()),
        ("x [slurm_ft limit=1] y", Tag(limit=1)),
        ("[slurm_ft n=2/3 ex=n1,n2 cause=xid79]", Tag(2, 3, ("n1", "n2"), "xid79")),
        ("[slurm_ft n=-1/x limit=many]", Tag()),
        ("[slurm_ft n=9999999999]", Tag()),
    ],
)
def test_reads(comment: str, tag: Tag) -> None:
    assert comment_tag.read(comment) == tag


@pytest.mark.parametrize("comment", ["", "slurm_ft", "[slurm_ftx]", "[slurm_ft", '{"flags":["slurm_ft"]}'])
def test_is_no_tag(comment: str) -> None:
    assert comment_tag.read(comment) is None


def test_foreign_text_around_the_tag_stays() -> None:
    written = comment_tag.write('{"a": "b"} [slurm_ft]\ttail é', Tag(1, 3, ("n1",), "xid79"))
    assert written == '{"a": "b"} [slurm_ft n=1/3 ex=n1 cause=xid79]\ttail é'


def test_a_job_without_a_tag_gets_one() -> None:
    assert comment_tag.write("mine", Tag(1, 3)) == "mine [slurm_ft n=1/3]"


def test_the_tag_shrinks_and_the_users_text_does_not() -> None:
    user = "x" * (COMMENT_LIMIT - len(" [slurm_ft n=1/3]"))
    assert comment_tag.write(user, Tag(1, 3, ("n1", "n2"), "xid79")) == f"{user} [slurm_ft n=1/3]"


def test_a_full_comment_is_left_alone() -> None:
    assert comment_tag.write("x" * COMMENT_LIMIT, Tag(1, 3)) is None


names = st.text(st.characters(whitelist_categories=["Ll", "Nd"], max_codepoint=127), min_size=1, max_size=8)
tags = st.builds(
    Tag,
    count=st.integers(0, 99),
    limit=st.integers(0, 99),
    excluded=st.lists(names, max_size=300).map(tuple),
    cause=names,
)


@given(st.text(max_size=1100), st.text(max_size=20), tags)
def test_any_foreign_text_survives_byte_for_byte(before: str, after: str, tag: Tag) -> None:
    if comment_tag.read(before) is not None:
        return
    written = comment_tag.write(f"{before}[slurm_ft]{after}", tag)
    if written is None:
        assert len(f"{before}{after}".encode("utf-8", "surrogateescape")) > COMMENT_LIMIT - 20
        return
    assert len(written.encode("utf-8", "surrogateescape")) <= COMMENT_LIMIT
    assert written.startswith(before)
    assert written.endswith(after)
    found = comment_tag.read(written)
    assert found is not None
    assert (found.count, found.limit) == (tag.count, tag.limit)


@given(st.text())
def test_no_text_crashes_the_reader(text: str) -> None:
    comment_tag.read(text)


# What other tools keep there, what users type, and what Slurm hands out of either.
foreign_flags = st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8) | st.booleans(), max_size=4)
foreign = (
    foreign_flags.map(json.dumps)
    | foreign_flags.map(lambda flags: json.dumps(flags, ensure_ascii=False))
    | st.text(st.sampled_from("\"'\\\n\r\t$`;|[]{}= \x00\x1b\x7fé字🦀\u202e\udcff"), max_size=60)
    | st.text(max_size=60)
)


@given(foreign, foreign, st.lists(tags, min_size=1, max_size=4))
def test_written_again_and_again_only_the_tag_changes(before: str, after: str, written: list[Tag]) -> None:
    if comment_tag.read(before) is not None:
        return
    comment = f"{before}[slurm_ft]{after}"
    for tag in written:
        comment = comment_tag.write(comment, tag) or comment
        assert comment.startswith(before)
        assert comment.endswith(after)
    assert json.loads(json.dumps(comment)) == comment


@given(foreign, tags)
def test_a_tag_that_was_erased_comes_back_behind_the_users_text(comment: str, tag: Tag) -> None:
    if comment_tag.read(comment) is not None or "[" in comment:
        return
    written = comment_tag.write(comment, tag)
    assert written is not None
    assert written.startswith(comment)
    found = comment_tag.read(written)
    assert found is not None
    assert found.count == tag.count


@given(st.integers(0, 60), tags)
def test_at_the_limit_the_tag_shrinks_before_the_users_text_does(room: int, tag: Tag) -> None:
    user = "é" * ((COMMENT_LIMIT - room) // 2)  # two bytes each: Slurm counts bytes
    written = comment_tag.write(user, tag)
    if written is None:
        assert len(f"{user} [slurm_ft n={tag.count}/{tag.limit}]".encode()) > COMMENT_LIMIT
        return
    assert written.startswith(user)
    assert len(written.encode()) <= COMMENT_LIMIT

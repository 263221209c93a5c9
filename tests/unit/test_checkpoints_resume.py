"""Which checkpoint of an output directory is chosen."""

from __future__ import annotations

import errno
import os
import zipfile

import pytest

from slurm_ft.checkpoints import (
    CheckpointError,
    Policy,
    UnreadableCheckpointError,
    Verdict,
    choose,
    files,
    find,
    storage_retry,
)
from slurm_ft.checkpoints.layouts import BY_NAME, LAYOUTS


def write_valid(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", bytes(range(256)))
    return path


@pytest.fixture
def output(tmp_path):
    directory = tmp_path / "output"
    directory.mkdir()
    return directory


def find_newest_valid(directory, framework, pauses=()):
    return choose(directory, framework, Policy(pauses=pauses, settle_seconds=0, cache=False))


def fill(directory, *names):
    for name in names:
        write_valid(directory / name)


def snapshot(directory):
    return {entry.name: entry.stat(follow_symlinks=False).st_mtime_ns for entry in os.scandir(directory)}


def rejected(search):
    return [(entry.candidate.step, entry.finding.verdict) for entry in search.rejected]


def test_order_is_by_number_not_by_name(output):
    fill(output, "ckpt_9.pth", "ckpt_10.pth", "ckpt_8.pth")
    point = find_newest_valid(output, "pytorch").point
    assert (point.step, point.path, point.layout) == (10, output / "ckpt_10.pth", "pytorch")


@pytest.mark.parametrize("framework", ["auto", "pytorch"])
def test_both_endings_count(output, framework):
    fill(output, "ckpt_7.pt", "ckpt_6.pth")
    assert find_newest_valid(output, framework).point.step == 7


def test_cascades_back_over_broken_ones_and_says_why(output):
    fill(output, "ckpt_100.pth", "ckpt_90.pth")
    content = (output / "ckpt_90.pth").read_bytes()
    (output / "ckpt_110.pth").write_bytes(content[:-5])
    (output / "ckpt_120.pth").touch()
    (output / "ckpt_130.pth").write_text("not a checkpoint")
    before = snapshot(output)
    search = find_newest_valid(output, "pytorch")
    assert search.point.step == 100
    assert rejected(search) == [(130, Verdict.CORRUPT), (120, Verdict.INCOMPLETE), (110, Verdict.INCOMPLETE)]
    assert snapshot(output) == before


def test_none_valid_gives_no_point_and_all_reasons(output):
    (output / "ckpt_2.pth").touch()
    (output / "ckpt_1.pth").touch()
    search = find_newest_valid(output, "auto")
    assert search.point is None
    assert [step for step, _ in rejected(search)] == [2, 1]


@pytest.mark.parametrize(
    "name",
    [
        ".ckpt_5.pth.n1.77.tmp",
        "ckpt_5.pth.tmp",
        "ckpt_5.pth~",
        "ckpt_5.pth.part",
        "tmp_ckpt_5.pth",
        "ckpt_best_5.pth",
        "ckpt_-5.pth",
        "ckpt_5.5.pth",
        "ckpt_٥.pth",
        "ckpt_5.pth\n",
        "Ckpt_5.pth",
        "ckpt_5.bin",
    ],
)
def test_other_names_are_no_candidates(output, name):
    write_valid(output / name)
    search = find_newest_valid(output, "pytorch")
    assert search.point is None
    assert search.rejected == ()


def test_empty_and_missing_directory_have_no_checkpoint(output):
    search = find_newest_valid(output, "auto")
    assert (search.directory, search.exists, search.point, search.rejected) == (output, True, None, ())
    assert not find_newest_valid(output / "later", "auto").exists


def test_link_within_the_directory_is_followed(output):
    (output / "data").mkdir()
    write_valid(output / "data" / "a.pth")
    (output / "ckpt_4.pth").symlink_to("data/a.pth")
    assert find_newest_valid(output, "pytorch").point.path == output / "ckpt_4.pth"


def test_output_directory_may_itself_be_a_link(output, tmp_path):
    fill(output, "ckpt_4.pth")
    (output / "ckpt_5.pth").symlink_to("ckpt_4.pth")
    (tmp_path / "link").symlink_to(output)
    assert find_newest_valid(tmp_path / "link", "pytorch").point.path == tmp_path / "link" / "ckpt_5.pth"


def test_link_that_leaves_the_directory_is_refused(output, tmp_path):
    fill(output, "ckpt_4.pth")
    write_valid(tmp_path / "elsewhere.pth")
    (output / "ckpt_5.pth").symlink_to(tmp_path / "elsewhere.pth")
    (output / "ckpt_6.pth").symlink_to("../output-of-somebody/ckpt_6.pth")
    (output / "ckpt_7.pth").symlink_to("ckpt_7.pth")
    search = find_newest_valid(output, "pytorch")
    assert search.point.step == 4
    assert rejected(search) == [(7, Verdict.INCONSISTENT), (6, Verdict.INCOMPLETE), (5, Verdict.INCONSISTENT)]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_directory_or_pipe_under_the_name_is_passed_over(output, make):
    fill(output, "ckpt_4.pth")
    make(output / "ckpt_5.pth")
    assert find_newest_valid(output, "pytorch").point.step == 4


def test_relative_directory_gives_an_absolute_path(output, monkeypatch):
    fill(output, "ckpt_4.pth")
    monkeypatch.chdir(output.parent)
    assert find_newest_valid(find.Path("output"), "pytorch").point.path == output / "ckpt_4.pth"


def test_unknown_framework_lists_the_known_ones(output):
    with pytest.raises(CheckpointError, match=r"auto, .*pytorch"):
        find_newest_valid(output, "jax")


def test_layouts_have_different_names():
    assert len(BY_NAME) == len(LAYOUTS)


def failing(code, real=None, times=None):
    """Return a replacement that fails with `code`, `times` times or always."""
    left = iter(range(times)) if times is not None else None

    def call(*arguments, **options):
        if left is None or next(left, None) is not None:
            raise OSError(code, os.strerror(code))
        return real(*arguments, **options)

    return call


def test_unreadable_newest_never_falls_back_to_an_older_one(output, monkeypatch):
    fill(output, "ckpt_4.pth", "ckpt_5.pth")
    monkeypatch.setattr("slurm_ft.checkpoints.formats.source.os.open", failing(errno.EIO))
    with pytest.raises(UnreadableCheckpointError, match=r"ckpt_5\.pth.*EIO"):
        find_newest_valid(output, "pytorch", pauses=(0.0, 0.0))


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOTDIR, errno.ETIMEDOUT])
def test_unreadable_directory_never_means_from_scratch(output, monkeypatch, code):
    monkeypatch.setattr(find.os, "listdir", failing(code))
    with pytest.raises(UnreadableCheckpointError, match=errno.errorcode[code]):
        find_newest_valid(output, "pytorch", pauses=(0.0,))


def test_storage_that_answers_the_second_time_is_good_enough(output, monkeypatch):
    fill(output, "ckpt_4.pth")
    monkeypatch.setattr(find.os, "listdir", failing(errno.ESTALE, os.listdir, times=2))
    assert find_newest_valid(output, "pytorch", pauses=(0.0, 0.0)).point.step == 4


def test_missing_permission_is_not_tried_again(output, monkeypatch):
    monkeypatch.setattr(find.os, "listdir", failing(errno.EACCES))
    monkeypatch.setattr(storage_retry.time, "sleep", lambda _seconds: pytest.fail("waited"))
    with pytest.raises(UnreadableCheckpointError):
        find_newest_valid(output, "pytorch", pauses=(1.0, 3.0))


def test_unreadable_link_is_not_refused_but_unreadable(output, monkeypatch):
    fill(output, "ckpt_4.pth")
    (output / "ckpt_5.pth").symlink_to("ckpt_4.pth")
    monkeypatch.setattr(files.Path, "resolve", failing(errno.ESTALE))
    with pytest.raises(UnreadableCheckpointError):
        find_newest_valid(output, "pytorch", pauses=())


def test_output_directory_that_is_a_dangling_link_is_unreadable(tmp_path):
    (tmp_path / "output").symlink_to(tmp_path / "not-mounted")
    with pytest.raises(UnreadableCheckpointError):
        find_newest_valid(tmp_path / "output", "pytorch", pauses=())

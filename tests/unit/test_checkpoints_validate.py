"""Which damage to a single checkpoint file is found, and what is no damage."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from slurm_ft.checkpoints import Candidate, Level, Request, UnreadableCheckpointError, Verdict, judge
from slurm_ft.checkpoints.layouts import BY_NAME

ROOT = Path(__file__).parents[2]

TENSOR = bytes(range(256)) * 400


def write_archive(path, tensor=TENSOR):
    """Write what torch.save writes, without torch."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", tensor)
        archive.writestr("archive/version", b"3\n")
    return path


def check_torch_file(path, level=Level.DEEP):
    return judge(Candidate(1, path, BY_NAME["pytorch"], path.parent), Request(level)).finding


@pytest.fixture
def checkpoint(tmp_path):
    return write_archive(tmp_path / "ckpt_1.pth")


def overwrite(path, offset, data):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_whole_file_is_valid(checkpoint):
    finding = check_torch_file(checkpoint)
    assert (finding.verdict, finding.reason) == (Verdict.VALID, "")


@pytest.mark.parametrize("cut", [1, 22, 100, 5000])
def test_truncated_file_is_incomplete(checkpoint, cut):
    os.truncate(checkpoint, checkpoint.stat().st_size - cut)
    assert check_torch_file(checkpoint).verdict is Verdict.INCOMPLETE


def test_zeroed_hole_inside_a_record_names_the_record(checkpoint):
    overwrite(checkpoint, 20_000, bytes(4096))
    finding = check_torch_file(checkpoint)
    assert finding.verdict is Verdict.CORRUPT
    assert "archive/data/0" in finding.reason


def test_one_flipped_bit_is_found(checkpoint):
    content = checkpoint.read_bytes()
    overwrite(checkpoint, 50_000, bytes([content[50_000] ^ 1]))
    assert check_torch_file(checkpoint).verdict is Verdict.CORRUPT


def test_empty_file_is_incomplete(tmp_path):
    path = tmp_path / "ckpt_1.pth"
    path.touch()
    assert check_torch_file(path).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("content", [b"step 120, loss 2.5\n", bytes(100_000), b"PK"])
def test_other_content_under_the_name_is_not_accepted(tmp_path, content):
    path = tmp_path / "ckpt_1.pth"
    path.write_bytes(content)
    assert not check_torch_file(path).resumable


def test_zip_archive_of_something_else_is_corrupt(tmp_path):
    with zipfile.ZipFile(tmp_path / "ckpt_1.pth", "w") as archive:
        archive.writestr("notes.txt", b"no tensors")
    assert "data.pkl" in check_torch_file(tmp_path / "ckpt_1.pth").reason


def test_every_single_damaged_byte_of_the_directory_gives_a_finding_not_a_crash(tmp_path):
    content = write_archive(tmp_path / "whole", tensor=b"tensor").read_bytes()
    path = tmp_path / "ckpt_1.pth"
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
        assert check_torch_file(path).verdict in Verdict


def test_bytes_missing_in_the_middle_are_found(checkpoint):
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[:30_000] + content[40_000:])
    assert not check_torch_file(checkpoint).resumable


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path, make):
    make(tmp_path / "ckpt_1.pth")
    assert check_torch_file(tmp_path / "ckpt_1.pth").verdict is Verdict.CORRUPT


def test_vanished_file_is_incomplete(tmp_path):
    assert check_torch_file(tmp_path / "ckpt_1.pth").verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EACCES])
@pytest.mark.parametrize("call", ["pathlib.Path.stat", "os.open", "os.pread", "os.preadv"])
def test_storage_that_does_not_answer_is_not_damage(checkpoint, monkeypatch, code, call):
    def fail(*_arguments, **_options):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(call, fail)
    with pytest.raises(UnreadableCheckpointError, match=errno.errorcode[code]):
        check_torch_file(checkpoint)


@pytest.mark.parametrize("call", ["pread", "preadv", "open"])
def test_storage_that_fails_at_any_moment_is_never_taken_for_damage(checkpoint, monkeypatch, call):
    real = getattr(os, call)
    for healthy_calls in range(1000):
        left = iter(range(healthy_calls))

        def fail_later(*arguments, left=left):
            if next(left, None) is None:
                raise OSError(errno.EIO, "Input/output error")
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail_later)
            try:
                finding = check_torch_file(checkpoint)
            except UnreadableCheckpointError:
                continue
        assert finding.verdict is Verdict.VALID
        assert healthy_calls > 1
        return
    pytest.fail("the check never succeeded")


def test_memory_stays_bounded(tmp_path):
    tracemalloc = pytest.importorskip("tracemalloc")
    path = write_archive(tmp_path / "ckpt_1.pth", tensor=bytes(100_000_000))
    tracemalloc.start()
    try:
        assert check_torch_file(path).resumable
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_checking_imports_no_torch():
    code = "import sys, slurm_ft.cli.resume; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, check=False).returncode == 0


class TestRealTorchFiles:
    """Files that torch itself wrote."""

    torch = pytest.importorskip("torch")

    def save(self, path, **options):
        self.torch.save({"model": self.torch.arange(5000.0), "optimizer": {}, "step": 3}, path, **options)
        return path

    def test_saved_file_is_valid(self, tmp_path):
        assert check_torch_file(self.save(tmp_path / "ckpt_3.pth")).verdict is Verdict.VALID

    def test_hole_that_torch_load_does_not_see_is_found(self, tmp_path):
        path = self.save(tmp_path / "ckpt_3.pth")
        overwrite(path, 9000, bytes(512))
        assert self.torch.load(path, weights_only=True)["step"] == 3
        assert check_torch_file(path).verdict is Verdict.CORRUPT

    def test_file_without_checksums_is_valid_with_a_note(self, tmp_path):
        before = self.torch.serialization.get_crc32_options()
        self.torch.serialization.set_crc32_options(False)
        try:
            finding = check_torch_file(self.save(tmp_path / "ckpt_3.pth"))
        finally:
            self.torch.serialization.set_crc32_options(before)
        assert finding.verdict is Verdict.VALID
        assert "no checksums" in finding.note or "without checksums" in finding.note

    def test_old_pickle_format_is_valid_with_a_note(self, tmp_path):
        finding = check_torch_file(self.save(tmp_path / "ckpt_3.pth", _use_new_zipfile_serialization=False))
        assert finding.verdict is Verdict.VALID
        assert "no checksums" in finding.note or "without checksums" in finding.note

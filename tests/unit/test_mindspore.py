"""MindSpore's checkpoints, judged without MindSpore. The files are real ones."""

from __future__ import annotations

import shutil
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.checkpoints import Level, Policy, UnreadableCheckpointError, Verdict, choose
from slurm_ft.checkpoints.formats import mindspore
from slurm_ft.checkpoints.formats.mindspore import check_ckpt_file, parameters_of, read_parameters
from slurm_ft.checkpoints.formats.source import DamagedError, opened

FROZEN = Path(__file__).parents[1] / "fixtures" / "checkpoints" / "mindspore" / "output"
NEWEST = FROZEN / "net_1-1_4.ckpt"
DEEP = Policy(level=Level.DEEP, cache=False, settle_seconds=0, pauses=())


@pytest.fixture
def output(tmp_path):
    return Path(shutil.copytree(FROZEN, tmp_path / "output"))


def check(path, level=Level.DEEP):
    with opened(path, path.name) as source:
        return check_ckpt_file(source, level).findings


def boundaries():
    """Where each parameter ends."""
    ends = [one.offset + one.length for one in parameters_of(NEWEST)]
    assert ends[-1] == NEWEST.stat().st_size
    return ends


def test_the_parameters_are_those_that_mindspore_wrote():
    found = {one.name: (one.dtype, one.shape) for one in parameters_of(NEWEST)}
    assert found["weight"] == ("F32", (2, 4))
    assert found["moments.bias"] == ("F32", (2,))
    assert found["epoch_num"] == ("I64", ())


def test_a_restart_begins_at_epoch_1_under_a_new_prefix_and_is_the_newest(output):
    names = {path.name for path in output.iterdir()}
    assert {"net-10_4.ckpt", "net_1-1_4.ckpt"} <= names
    search = choose(output, "auto", DEEP)
    assert (search.point.path.name, search.point.step) == ("net_1-1_4.ckpt", 44)


@pytest.mark.parametrize("kept", range(1, len(boundaries())))
def test_a_cut_between_two_parameters_is_noticed_although_mindspore_loads_it(output, kept):
    newest = output / NEWEST.name
    newest.write_bytes(newest.read_bytes()[: boundaries()[kept - 1]])
    assert check(newest) == ()  # nothing in the file itself tells
    search = choose(output, "auto", DEEP)
    assert search.point.path.name == "net-10_4.ckpt"
    assert search.rejected[0].finding.verdict is Verdict.INCOMPLETE
    assert "is missing" in search.rejected[0].finding.reason


@pytest.mark.parametrize("cut", [1, 5, 10, 100])
def test_a_cut_within_a_parameter_is_incomplete(output, cut):
    newest = output / NEWEST.name
    newest.write_bytes(newest.read_bytes()[:-cut])
    assert check(newest)[0].verdict is Verdict.INCOMPLETE


def test_a_slice_of_a_large_parameter_that_is_missing_is_noticed(tmp_path):
    """Parameters above 512 MiB are written in slices, each with the whole shape."""
    head = bytes([0x0A, 6]) + b"weight"
    tensor = bytes([0x08, 8, 0x12, 7]) + b"Float32" + bytes([0x1A, 16]) + bytes(16)
    value = head + bytes([0x12, len(tensor)]) + tensor
    message = bytes([0x0A, len(value)]) + value
    path = tmp_path / "net-1_1.ckpt"
    path.write_bytes(message * 2)
    assert check(path) == ()
    path.write_bytes(message)
    assert "16 bytes where its shape needs 32" in check(path)[0].reason


def with_checksum(path):
    content = path.read_bytes()
    path.write_bytes(content + b"crc_num" + zlib.crc32(content).to_bytes(10, "big"))


def test_the_checksum_at_its_end_is_checked(output):
    newest = output / NEWEST.name
    with_checksum(newest)
    assert choose(output, "mindspore", DEEP).point.path == newest
    content = bytearray(newest.read_bytes())
    content[parameters_of(newest)[0].offset] ^= 1
    newest.write_bytes(content)
    search = choose(output, "mindspore", DEEP)
    assert search.point.path.name == "net-10_4.ckpt"
    assert "checksum" in search.rejected[0].finding.reason


def test_nan_in_a_parameter_is_damage(output):
    newest = output / NEWEST.name
    content = bytearray(newest.read_bytes())
    at = parameters_of(newest)[0].offset
    content[at : at + 4] = b"\x00\x00\xc0\x7f"
    newest.write_bytes(content)
    assert choose(output, "mindspore", DEEP).rejected[0].finding.verdict is Verdict.CORRUPT


def test_each_rank_has_to_have_the_file(tmp_path):
    output = tmp_path / "output"
    for rank in ("rank_0", "rank_1"):
        shutil.copytree(FROZEN, output / rank)
    assert choose(output, "mindspore", DEEP).point.path == output / "rank_0" / NEWEST.name
    (output / "rank_1" / NEWEST.name).unlink()
    search = choose(output, "mindspore", DEEP)
    assert search.point.path.name == "net-10_4.ckpt"
    assert "rank_1" in search.rejected[0].finding.reason


def test_a_model_without_an_optimizer_is_weights_only(output):
    for path in output.iterdir():
        path.write_bytes(path.read_bytes()[: boundaries()[1]])
    search = choose(output, "mindspore", DEEP)
    assert search.point.finding.verdict is Verdict.WEIGHTS_ONLY


def test_an_encrypted_file_is_not_called_damaged(output):
    newest = output / NEWEST.name
    newest.write_bytes(mindspore.ENCRYPTED + bytes(100))
    assert check(newest)[0].note


def test_lightnings_files_of_the_same_ending_are_torchs():
    path = FROZEN.parents[1] / "lightning" / "output" / "last.ckpt"
    assert check(path) == ()


@given(st.binary(max_size=400))
def test_no_content_leads_to_anything_but_a_finding(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "net-1_1.ckpt"
    path.write_bytes(b"\x0a" + content)
    with opened(path, path.name) as source, suppress(DamagedError):
        assert read_parameters(source)


@given(st.integers(0, 353), st.integers(0, 255))
def test_no_changed_byte_leads_to_anything_but_a_finding(tmp_path_factory, at, byte):
    path = tmp_path_factory.mktemp("any") / "net-1_1.ckpt"
    content = bytearray(NEWEST.read_bytes())
    content[at] = byte
    path.write_bytes(content)
    check(path)


def test_storage_that_does_not_answer_is_no_damage(output, monkeypatch):
    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.pread", fail)
    with pytest.raises(UnreadableCheckpointError):
        parameters_of(output / NEWEST.name)

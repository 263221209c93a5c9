"""A checkpoint is untrusted input: nothing in one is executed, leads out of its directory or fills the memory."""

from __future__ import annotations

import json
import os
import pickle
import struct
import tracemalloc
import zipfile
from contextlib import suppress

import checkpoint_trees as trees
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_ft.checkpoints import Candidate, Level, Request, Verdict, judge
from slurm_ft.checkpoints.formats import stub_pickle
from slurm_ft.checkpoints.formats.torch_file import read_torch_object
from slurm_ft.checkpoints.layouts import BY_NAME


def look(path, layout="hf", level=Level.DEEP):
    return judge(Candidate(10, path, BY_NAME[layout], path.parent), Request(level)).finding


class Attack:
    """What a pickle of this does when it is loaded."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.fixture
def attack(tmp_path):
    return Attack(f"touch {tmp_path}/executed")


class TestNoCode:
    def test_in_a_torch_file(self, tmp_path, attack):
        torch.save({"net": trees.model(), "optimizer": attack}, tmp_path / "ckpt_10.pth")
        assert look(tmp_path / "ckpt_10.pth", "pytorch").verdict is Verdict.VALID
        assert isinstance(read_torch_object(tmp_path / "ckpt_10.pth")["optimizer"], stub_pickle.Stub)
        assert not (tmp_path / "executed").exists()

    def test_in_a_legacy_file_and_a_plain_pickle(self, tmp_path, attack):
        state = {"net": trees.model(), "optimizer": attack}
        torch.save(state, tmp_path / "ckpt_10.pth", _use_new_zipfile_serialization=False)
        look(tmp_path / "ckpt_10.pth", "pytorch")
        path = trees.hf(tmp_path, 10)
        (path / "extra.pkl").write_bytes(pickle.dumps(attack))
        look(path)
        assert not (tmp_path / "executed").exists()

    def test_in_dcp_metadata(self, tmp_path, attack):
        (tmp_path / "step-10").mkdir()
        (tmp_path / "step-10" / "__0_0.distcp").write_bytes(b"PK")
        (tmp_path / "step-10" / ".metadata").write_bytes(pickle.dumps(attack))
        assert look(tmp_path / "step-10", "dcp").verdict is Verdict.CORRUPT
        assert not (tmp_path / "executed").exists()

    @pytest.mark.parametrize(
        "content",
        [
            b"cos\nsystem\n(S'touch executed'\ntR.",
            b"\x80\x02cbuiltins\neval\n(U\x04exit\x85R.",
            b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
            b"\x80\x02c__builtin__\ngetattr\n(c__builtin__\nobject\nU\x0e__subclasses__\x86R)R.",
            b"(S'true'\nios\nsystem\n.",
        ],
    )
    def test_whatever_a_pickle_names_becomes_data(self, content):
        try:
            tree = stub_pickle.load(content)
        except stub_pickle.OpaqueError:
            return
        assert isinstance(tree, stub_pickle.Stub)

    @given(st.binary(max_size=200))
    @settings(max_examples=300, deadline=None)
    def test_any_bytes_are_an_object_or_opaque(self, content):
        with suppress(stub_pickle.OpaqueError):
            stub_pickle.load(content)


class TestNoWayOut:
    @pytest.mark.parametrize("shard", ["../secret.safetensors", "/etc/passwd", "..", "a/../../b.safetensors"])
    def test_of_an_index(self, tmp_path, shard):
        path = trees.hf(tmp_path, 10)
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": shard}}))
        assert "outside its directory" in look(path, level=Level.QUICK).reason

    @pytest.mark.parametrize("file", ["../secret", "/etc/passwd"])
    def test_of_dcp_metadata(self, tmp_path, file):
        from torch.distributed.checkpoint.filesystem import _StorageInfo  # noqa: PLC0415
        from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex  # noqa: PLC0415

        storage = {MetadataIndex("a"): _StorageInfo(file, 0, 10)}
        metadata = Metadata({"a": BytesStorageMetadata()}, storage_data=storage)
        (tmp_path / "step-10").mkdir()
        (tmp_path / "step-10" / "__0_0.distcp").write_bytes(b"PK")
        (tmp_path / "step-10" / ".metadata").write_bytes(pickle.dumps(metadata))
        assert "outside its directory" in look(tmp_path / "step-10", "dcp").reason

    @pytest.mark.parametrize("latest", ["*", "..", "../checkpoint-9", "/", "global_step1?"])
    def test_of_a_tracker(self, tmp_path, latest):
        path = trees.hf_deepspeed(tmp_path, 10)
        (path / "latest").write_text(latest)
        assert look(path).verdict is Verdict.INCOMPLETE

    def test_of_a_link_within_a_checkpoint(self, tmp_path):
        path = trees.hf(tmp_path / "out", 10)
        (path / "optimizer.pt").rename(tmp_path / "optimizer.pt")
        (path / "optimizer.pt").symlink_to(tmp_path / "optimizer.pt")
        finding = judge(Candidate(10, path, BY_NAME["hf"], tmp_path / "out"), Request()).finding
        assert (finding.verdict, "leaves the output" in finding.reason) == (Verdict.INCONSISTENT, True)


class TestBoundedMemory:
    @pytest.fixture(autouse=True)
    def bounded(self):
        tracemalloc.start()
        yield
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100 << 20

    def test_pickle_that_reserves_a_huge_memo(self):
        assert stub_pickle.load(b"\x80\x02Nr\xff\xff\xff\x7f.") is None

    @pytest.mark.parametrize("opcode", [b"\x8e", b"\x8d", b"\x96"])
    def test_pickle_that_announces_gigabytes(self, opcode):
        with pytest.raises(stub_pickle.OpaqueError):
            stub_pickle.load(b"\x80\x05" + opcode + (4 << 30).to_bytes(8, "little") + b"x.")

    def test_safetensors_with_a_header_as_large_as_allowed(self, tmp_path):
        path = trees.hf(tmp_path, 10)
        with (path / "model.safetensors").open("wb") as file:
            file.write((99_000_000).to_bytes(8, "little") + b"{")
            file.truncate(200_000_000)
        assert "too large to check" in look(path, level=Level.QUICK).note

    def test_deeply_nested_json(self, tmp_path):
        path = trees.hf(tmp_path, 10)
        (path / "extra.json").write_text("[" * 200_000 + "]" * 200_000)
        assert look(path, level=Level.QUICK).verdict is Verdict.CORRUPT

    def test_large_json_is_not_parsed(self, tmp_path):
        path = trees.hf(tmp_path, 10)
        with (path / "extra.json").open("wb") as file:
            file.truncate(1 << 30)
        assert look(path, level=Level.QUICK).verdict is Verdict.INCOMPLETE

    def test_zip_directory_of_a_gigabyte(self, tmp_path):
        path = tmp_path / "ckpt_10.pth"
        with path.open("wb") as file:
            file.write(b"PK\3\4")
            file.truncate(1 << 30)
            file.seek(1 << 30)
            file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 9, 9, (1 << 30) - 4, 4, 0))
        assert look(path, "pytorch", Level.QUICK).verdict is Verdict.CORRUPT

    def test_compressed_record_is_not_inflated(self, tmp_path):
        path = tmp_path / "ckpt_10.pth"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data.pkl", bytes(1 << 20))
        assert "not stored" in look(path, "pytorch").reason

    def test_rank_number_without_an_end(self, tmp_path):
        path = trees.hf(tmp_path, 10, world=2)
        (path / "rng_state_1.pth").rename(path / "rng_state_99999999999999.pth")
        assert look(path, level=Level.QUICK).verdict is Verdict.INCONSISTENT

    def test_deepspeed_rank_number_without_an_end(self, tmp_path):
        tag = trees.deepspeed_tag(tmp_path / "global_step10", 10)
        name = "zero_pp_rank_{}_mp_rank_00_optim_states.pt"
        (tag / name.format(1)).rename(tag / name.format(99999999999999))
        assert look(tag, "deepspeed", Level.QUICK).verdict is Verdict.INCONSISTENT


@pytest.mark.parametrize("name", ["config.json", "trainer_state.json", "model.safetensors.index.json"])
@pytest.mark.parametrize(
    "value", ["[]", "7", "null", '{"weight_map": 3}', '{"vocab_size": [], "num_hidden_layers": "x"}']
)
def test_json_of_any_shape_gives_a_finding(tmp_path, name, value):
    path = trees.hf(tmp_path, 10)
    (path / name).write_text(value)
    assert look(path).verdict in Verdict


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_bytes_under_any_known_name_give_a_finding(content):
    import tempfile  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as base:
        path = Path(base) / "checkpoint-10"
        path.mkdir()
        for name in ("model.safetensors", "optimizer.pt", "a.pkl", ".metadata", "MANIFEST.json", "trainer_state.json"):
            (path / name).write_bytes(content)
        (path / "__0_0.distcp").write_bytes(content)
        for layout in ("hf", "dcp", "concurrent", "deepspeed", "accelerate"):
            assert look(path, layout).verdict in Verdict

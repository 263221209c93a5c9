"""The files are those that torch, safetensors and torch.distributed.checkpoint would have written themselves."""

from __future__ import annotations

import copy
import errno
import fcntl
import io
import os
import zipfile

import pytest
import torch
import torch.distributed.checkpoint as dcp
from small_training import WIDTH, Training, differences, load, snapshot_of

from slurm_ft.checkpoints import Policy, choose
from slurm_ft.checkpoints.finding import Level
from slurm_ft.vendor.datastates._engine import skeleton, writer

# What safetensors 0.8.0 wrote for save_file({"b": arange(3.), "a": tensor([1, 2]), "c": bfloat16 ones(2), "e": empty},
# metadata={"format": "pt"}): the header, then the data.
SAFETENSORS_HEADER = (
    b'{"__metadata__":{"format":"pt"},"a":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},'
    b'"b":{"dtype":"F32","shape":[3],"data_offsets":[16,28]},"e":{"dtype":"F32","shape":[0],"data_offsets":[28,28]},'
    b'"c":{"dtype":"BF16","shape":[2],"data_offsets":[28,32]}}'
)


def test_a_torch_file_has_the_records_that_torch_save_writes(training, make_engine, tmp_path):
    engine, stock = make_engine(), tmp_path / "state.pt"
    state = training.state()
    torch.save(state, stock)
    engine.save(2, lambda c: c.torch_save(state, c.directory / "state.pt"))
    load(engine, 2)
    with zipfile.ZipFile(stock) as theirs, zipfile.ZipFile(engine.root / "checkpoint-2" / "state.pt") as ours:
        for left, right in zip(theirs.infolist(), ours.infolist(), strict=True):
            assert (left.filename, left.file_size, left.header_offset) == (
                right.filename,
                right.file_size,
                right.header_offset,
            )
            assert right.CRC == 0
            if not left.filename.endswith("serialization_id"):  # a hash over the CRCs, of which we have none
                assert theirs.read(left) == read_unchecked(engine.root / "checkpoint-2" / "state.pt", right)


def read_unchecked(path, record) -> bytes:
    with path.open("rb") as file:
        file.seek(record.header_offset + 26)
        name, extra = (int.from_bytes(file.read(2), "little") for _ in range(2))
        file.seek(name + extra, io.SEEK_CUR)
        return file.read(record.file_size)


@pytest.mark.parametrize("direct", [True, False])
def test_files_are_whole_with_and_without_direct_io(training, make_engine, direct):
    engine, expected = make_engine(direct_io=direct), snapshot_of(training.state())
    engine.save(2, lambda c: c.torch_save(training.state(), c.directory / "state.pt"))
    assert differences(expected, load(engine, 2)) == []


def test_a_file_system_that_refuses_direct_writes_gets_buffered_ones(training, make_engine, monkeypatch):
    engine, expected = make_engine(), snapshot_of(training.state())
    write = writer._write_all
    refused = []

    def picky(descriptor, view, offset):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            refused.append(offset)
            raise OSError(errno.EINVAL, "Invalid argument")
        write(descriptor, view, offset)

    monkeypatch.setattr(writer, "_write_all", picky)
    engine.save(2, lambda c: c.torch_save(training.state(), c.directory / "state.pt"))
    assert differences(expected, load(engine, 2)) == []
    assert refused


@pytest.mark.parametrize("mmap", [True, False])
def test_torch_load_reads_it_with_and_without_mmap(training, make_engine, mmap):
    engine, expected = make_engine(), snapshot_of(training.state())
    engine.save(2, lambda c: c.torch_save(training.state(), c.directory / "state.pt"))
    load(engine, 2)
    loaded = torch.load(engine.root / "checkpoint-2" / "state.pt", weights_only=True, mmap=mmap)
    assert differences(expected, loaded) == []


def test_tensors_that_share_memory_still_share_it(make_engine):
    engine, base = make_engine(), torch.arange(float(WIDTH * WIDTH))
    engine.save(1, lambda c: c.torch_save({"all": base, "half": base[: WIDTH * WIDTH // 2]}, c.directory / "state.pt"))
    loaded = load(engine, 1)
    loaded["all"][0] = 7
    assert loaded["half"][0] == 7


def test_a_custom_class_and_a_file_name_that_is_not_ascii(make_engine):
    engine = make_engine()
    engine.save(1, lambda c: c.torch_save(training_step, c.directory / "größe.pt"))
    assert engine.wait(20)
    path = engine.root / "checkpoint-1" / "größe.pt"
    assert torch.load(path, weights_only=False) is training_step


def training_step() -> None:
    """An object that is pickled by its name."""


def test_a_safetensors_file_has_the_bytes_of_the_library(make_engine):
    tensors = {
        "b": torch.arange(3.0),
        "a": torch.tensor([1, 2]),
        "c": torch.ones(2, dtype=torch.bfloat16),
        "e": torch.empty(0),
    }
    engine = make_engine()
    engine.save(1, lambda c: c.save_safetensors(tensors, c.directory / "model.safetensors", {"format": "pt"}))
    assert engine.wait(20)
    content = (engine.root / "checkpoint-1" / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    assert content[8 : 8 + length].rstrip(b" ") == SAFETENSORS_HEADER
    data = content[8 + length :]
    assert data == b"".join(
        tensors[name].view(torch.uint8).numpy().tobytes() if tensors[name].numel() else b"" for name in "abec"
    )


def test_dcp_reads_what_its_planner_placed_and_we_wrote(make_engine, slow_workers):
    engine, training = make_engine(copy="lazy"), Training(layers=2)
    training.step(2)
    whole = torch.randn(WIDTH, WIDTH)
    state = {**training.state(), "view": whole[: WIDTH // 2], "turned": whole.t(), "corner": whole[:9, :9]}
    expected = snapshot_of(state)

    def write(capture):
        with pytest.warns(UserWarning, match="torch.distributed is disabled"):
            dcp.save(state, storage_writer=capture.dcp_writer(capture.directory / "dcp"), no_dist=True)

    engine.save(2, write)
    training.step()
    assert engine.wait(20)
    assert not engine.status.last_error
    found = copy.deepcopy({key: zeroed(value) for key, value in state.items()})
    with pytest.warns(UserWarning, match="torch.distributed is disabled"):
        dcp.load(found, storage_reader=dcp.FileSystemReader(engine.root / "checkpoint-2" / "dcp"), no_dist=True)
    assert differences(expected, found) == []


def zeroed(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    return {key: zeroed(item) for key, item in value.items()} if isinstance(value, dict) else value


def test_the_checkpoint_library_calls_every_format_valid(make_engine):
    engine, training = make_engine(), Training(layers=2)
    training.step(2)

    def write(capture):
        capture.torch_save(training.state(), capture.directory / "optimizer.pt")
        capture.save_safetensors(training.model.state_dict(), capture.directory / "model.safetensors")
        with pytest.warns(UserWarning, match="torch.distributed is disabled"):
            dcp.save(training.state(), storage_writer=capture.dcp_writer(capture.directory / "dcp"), no_dist=True)

    engine.save(2, write)
    assert engine.wait(20)
    search = choose(engine.root, "concurrent", Policy(level=Level.DEEP, cache=False, settle_seconds=0))
    assert search.point is not None
    assert search.rejected == ()


def test_this_torch_can_do_without_the_fallback():
    assert skeleton.works()

"""What is on the disk is what the tensors held when `save` was called, whatever the training did meanwhile."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from small_training import WIDTH, Training, differences, load, save, snapshot_of

from slurm_ft.vendor.datastates._engine import skeleton
from slurm_ft.vendor.datastates._engine.image import FileImage
from slurm_ft.vendor.datastates._engine.status import Outcome
from slurm_ft.vendor.datastates._engine.writer import Workers

COPIES = ("lazy", "eager")


@pytest.mark.parametrize("copy", COPIES)
def test_steps_taken_while_the_checkpoint_is_written_do_not_show_in_it(training, make_engine, slow_workers, copy):
    engine, expected = make_engine(copy=copy), snapshot_of(training.state())
    assert save(engine, training) is Outcome.STARTED
    training.step(3)
    assert differences(expected, load(engine, 2)) == []
    assert differences(expected, training.state()) != []


def test_without_the_fence_the_same_save_is_torn(training, make_engine, held_workers, monkeypatch):
    """The control: what the test above sees is the fence's doing. The torn file loads without a word."""
    engine, expected = make_engine(copy="lazy"), snapshot_of(training.state())
    monkeypatch.setattr(engine._fence, "settle", lambda: None)
    assert save(engine, training) is Outcome.STARTED
    training.step(3)
    held_workers.set()
    torn = differences(expected, load(engine, 2))
    assert {name.split(".")[1] for name in torn} == {"model", "optimizer"}


def test_a_lazy_save_copies_nothing_while_it_is_called(training, make_engine, slow_workers):
    engine = make_engine(copy="lazy")
    save(engine, training)
    assert engine._pool.peak == 0
    training.step()
    assert engine._pool.peak > 0


def test_a_model_with_two_saves_of_one_path_keeps_the_last(training, make_engine):
    """DeepSpeed ZeRO-3 without gathering saves every file twice in one call."""
    engine = make_engine()

    def write(capture):
        for value in (1, 2):
            capture.torch_save({"value": torch.full((WIDTH, WIDTH), value)}, capture.directory / "twice.pt")

    engine.save(2, write)
    assert load(engine, 2, "twice.pt")["value"].unique().tolist() == [2]


def test_a_file_that_the_saver_removes_again_is_not_written(training, make_engine):
    """ZeRO-3 in the Trainer saves a dummy model and removes it only if it is there."""
    engine = make_engine()

    def write(capture):
        path = capture.directory / "dummy.pt"
        capture.torch_save(training.state(), path)
        assert path.exists()
        path.unlink()
        capture.torch_save({}, capture.directory / "real.pt")

    engine.save(2, write)
    assert load(engine, 2, "real.pt") == {}
    assert not (engine.root / "checkpoint-2" / "dummy.pt").exists()


def test_a_buffer_that_forward_changes_is_copied_at_capture(make_engine, slow_workers):
    """BatchNorm's running mean changes in forward, long before any optimizer steps."""
    model = torch.nn.BatchNorm1d(100_000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    engine = make_engine(copy="lazy")

    def forward():
        return model(torch.randn(4, 100_000)).pow(2).sum()

    forward().backward()
    optimizer.step()
    expected = snapshot_of(model.state_dict())
    engine.save(1, lambda capture: capture.torch_save(model.state_dict(), capture.directory / "state.pt"))
    forward()
    assert differences(expected, load(engine, 1)) == []
    assert differences(expected, model.state_dict()) == [".running_mean", ".running_var", ".num_batches_tracked"]


def test_a_temporary_that_the_saver_uses_again_is_copied_when_it_is_saved(training, make_engine, slow_workers):
    engine, gathered = make_engine(copy="lazy"), torch.zeros(WIDTH, WIDTH)

    def write(capture):
        for value in range(3):
            gathered.fill_(value)
            capture.torch_save(gathered, capture.directory / f"part{value}.pt")

    engine.save(2, write)
    gathered.fill_(9)
    assert [load(engine, 2, f"part{value}.pt").unique().tolist() for value in range(3)] == [[0.0], [1.0], [2.0]]


def test_small_temporaries_at_one_address_are_not_mixed_up(training, make_engine):
    """A private copy must keep the storage's identity taken: the next temporary may lie where the last one did."""
    engine = make_engine(copy="lazy")

    def write(capture):
        for value in range(50):
            capture.torch_save(torch.full((16,), value), capture.directory / f"rng_{value}.pt")

    engine.save(2, write)
    assert [load(engine, 2, f"rng_{value}.pt")[0].item() for value in range(50)] == list(range(50))


def test_numbers_and_objects_are_saved_as_they_were(training, make_engine, slow_workers):
    """NVIDIA Megatron-Bridge 3267: a step counter captured late names the wrong step."""
    engine, counters = make_engine(copy="lazy"), {"step": 2, "scale": [65536.0], "seen": torch.tensor(2)}
    engine.save(2, lambda capture: capture.torch_save(counters, capture.directory / "state.pt"))
    counters["step"], counters["scale"][0] = 3, 1.0
    counters["seen"].add_(1)
    assert load(engine, 2) == {"step": 2, "scale": [65536.0], "seen": torch.tensor(2)}


def test_an_optimizer_that_never_announces_its_step_is_copied_at_once(make_engine, slow_workers):
    """ZenFlow and others do not derive from torch.optim.Optimizer: the hook does not fire for them."""
    weight = torch.ones(WIDTH, WIDTH)
    engine = make_engine(copy="lazy")
    engine.save(1, lambda capture: capture.torch_save({"w": weight}, capture.directory / "state.pt"))
    weight.add_(1)
    assert load(engine, 1)["w"].unique().tolist() == [1.0]


def test_each_checkpoint_has_its_own_bytes(training, make_engine):
    """NVIDIA NeMo RL 3312: a cached structure wrote the first checkpoint's tensors into every later one."""
    engine, expected = make_engine(copy="lazy"), {}
    for _ in range(3):
        expected[training.done] = snapshot_of(training.state())
        save(engine, training)
        training.step(2)
        assert engine.wait(20)
    for step, state in expected.items():
        assert differences(state, load(engine, step)) == []


@pytest.mark.parametrize("copy", COPIES)
def test_a_tiny_pool_streams_and_blocks_but_saves_the_right_bytes(make_engine, monkeypatch, copy):
    """DataStates-LLM ends the process when a tensor is larger than its pool."""
    starved, move = threading.Event(), Workers._move

    def once_somebody_waits_for_room(self, *claim):
        while not starved.wait(0.01):
            if self._snapshot._starved:
                starved.set()
        move(self, *claim)

    monkeypatch.setattr(Workers, "_move", once_somebody_waits_for_room)
    engine, large = make_engine(copy=copy, host_cache_size=8 / 1024), Training(layers=40)
    large.step(2)
    expected = snapshot_of(large.state())
    save(engine, large)
    large.step()
    assert differences(expected, load(engine, 2)) == []
    assert engine.status.starved_seconds > 0


def test_no_pool_at_all_still_saves(training, make_engine):
    engine, expected = make_engine(copy="lazy", host_cache_size=0), snapshot_of(training.state())
    save(engine, training)
    training.step()
    assert differences(expected, load(engine, 2)) == []


def test_a_temporary_without_room_in_the_pool_is_written_by_the_caller(training, make_engine):
    engine = make_engine(copy="lazy", host_cache_size=0)
    big = torch.ones(2000, 1200)
    engine.save(2, lambda capture: capture.torch_save(big, capture.directory / "big.pt"))
    big.zero_()
    assert load(engine, 2, "big.pt").unique().tolist() == [1.0]
    assert engine.status.blocking_bytes > 9_000_000


def test_the_debug_mode_finds_an_edit_that_no_fence_can_see(training, make_engine, slow_workers):
    """Somebody writes through `.data` in the middle of a step."""
    engine = make_engine(copy="lazy", debug_hash=True)
    save(engine, training)
    for parameter in training.model.parameters():
        parameter.data.add_(1)
    assert engine.wait(20)
    assert "changed between capture and copy" in engine.status.last_error
    assert not (engine.root / "checkpoint-2").exists()


def test_the_debug_mode_passes_an_honest_training(training, make_engine, slow_workers):
    engine = make_engine(copy="lazy", debug_hash=True)
    save(engine, training)
    training.step(2)
    load(engine, 2)


def test_the_fence_takes_over_what_a_stuck_worker_is_reading(training, make_engine, monkeypatch):
    """A writer that does not get a processor must not hold the optimizer, nor write what it read too late."""
    engine, expected = make_engine(copy="lazy"), snapshot_of(training.state())
    assemble = FileImage.assemble
    stepped = []

    def late(self, index, address):
        if threading.current_thread().name.startswith("datastates-writer"):
            while not stepped:
                time.sleep(0.01)
        return assemble(self, index, address)

    monkeypatch.setattr(FileImage, "assemble", late)
    save(engine, training)
    training.step()
    stepped.append(True)
    assert differences(expected, load(engine, 2)) == []


def test_a_storage_that_is_freed_during_the_save_loses_the_save_and_nothing_else(training, make_engine, slow_workers):
    """FSDP resizes storages to nothing; the address must not be read then."""
    engine = make_engine(copy="lazy")
    save(engine, training)
    for parameter in training.model.parameters():
        parameter.untyped_storage().resize_(0)
    assert engine.wait(20)
    assert "freed or moved" in engine.status.last_error
    assert engine.status.failed == 1


def test_a_torch_without_skip_data_saves_the_plain_way(training, make_engine, monkeypatch):
    monkeypatch.setattr(skeleton, "works", lambda: False)
    engine, expected = make_engine(), snapshot_of(training.state())
    save(engine, training)
    training.step()
    assert differences(expected, load(engine, 2)) == []

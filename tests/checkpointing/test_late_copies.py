"""Copies that a GPU makes behind the CPU's back: what must wait for them, and where."""

from __future__ import annotations

import threading
import time

import late_device
import pytest
import torch
from late_device import LateDevice
from small_training import WIDTH, differences, load, save, snapshot_of

from slurm_ft.vendor.datastates._engine import fence as fence_module
from slurm_ft.vendor.datastates._engine.pool import Pool
from slurm_ft.vendor.datastates._engine.status import Outcome

COPIES = ("lazy", "eager")
DELAY = 0.02  # seconds a copy: longer than the steps that must not be seen


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("count", [1, 2])
def test_the_training_waits_for_the_copies_of_every_gpu(training, make_engine, monkeypatch, copy, count):
    """With two, files have chunks of tensors on both, the second far behind the first."""
    late_device.use(monkeypatch, *[LateDevice(DELAY * number) for number in range(1, count + 1)])
    engine, expected = make_engine(copy=copy), snapshot_of(training.state())
    assert save(engine, training) is Outcome.STARTED
    training.step(3)
    assert differences(expected, load(engine, 2)) == []


def test_without_that_wait_the_checkpoint_is_torn(training, make_engine, monkeypatch):
    """The control."""
    late_device.use(monkeypatch, LateDevice(DELAY, holds=False))
    engine, expected = make_engine(copy="lazy"), snapshot_of(training.state())
    save(engine, training)
    training.step(3)
    assert differences(expected, load(engine, 2)) != []


def test_gpu_memory_beyond_the_pool_streams(training, make_engine, monkeypatch):
    late_device.use(monkeypatch, LateDevice(0.001))
    engine, expected = make_engine(host_cache_size=0), snapshot_of(training.state())
    assert save(engine, training) is Outcome.STARTED
    assert engine.wait(20)
    assert differences(expected, load(engine, 2)) == []


def test_what_a_saver_gathered_is_copied_before_the_training_goes_on(training, make_engine, monkeypatch):
    late_device.use(monkeypatch, LateDevice(DELAY))
    engine, gathered = make_engine(copy="lazy"), torch.ones(WIDTH, WIDTH)
    engine.save(2, lambda capture: capture.torch_save(gathered, capture.directory / "gathered.pt"))
    gathered.fill_(7)
    assert load(engine, 2, "gathered.pt").unique().tolist() == [1.0]


def test_the_debug_mode_hashes_what_the_gpu_copied(training, make_engine, monkeypatch):
    late_device.use(monkeypatch, LateDevice(DELAY))
    engine, expected = make_engine(debug_hash=True, copy="lazy"), snapshot_of(training.state())
    save(engine, training)
    training.step(2)
    assert differences(expected, load(engine, 2)) == []


def test_a_buffer_that_a_gpu_still_writes_into_is_not_given_to_the_next_save(training, make_engine, monkeypatch):
    device = LateDevice(DELAY)
    late_device.use(monkeypatch, device)
    engine = make_engine(copy="lazy")
    copied = []
    give_back = engine._pool.give_back
    monkeypatch.setattr(engine._pool, "give_back", lambda buffers: (copied.append(device.copies), give_back(buffers)))
    save(engine, training)
    queued = engine._flight.snapshot._queued[-1]
    engine._give_up("the test says so")
    assert engine.wait(20)
    assert all(event.over.is_set() for event in queued.events.values())
    assert copied
    assert engine._pool._used == 0


def test_an_optimizer_whose_step_went_into_a_cuda_graph_is_copied_at_once(training, make_engine, monkeypatch):
    """Replays of a graph fire no hook: nothing would hold them back."""
    engine = make_engine(copy="lazy")
    monkeypatch.setattr(fence_module, "capturing_graph", lambda: True)
    training.step()
    monkeypatch.setattr(fence_module, "capturing_graph", lambda: False)
    for _ in range(2):
        training.step()
        save(engine, training)
        assert engine.wait(20)
        assert not engine.status.lazy


def test_a_save_that_a_cuda_graph_catches_up_with_is_given_up(training, make_engine, monkeypatch, slow_workers):
    engine = make_engine(copy="lazy")
    save(engine, training)
    monkeypatch.setattr(fence_module, "capturing_graph", lambda: True)
    training.step()
    assert engine.wait(20)
    assert "put into a CUDA graph" in engine.status.last_error


# --- memory that is page-locked ahead of the first save ---------------------------------------------------------------


class Pinner:
    """Notes what is pinned, and by which thread."""

    def __init__(self) -> None:
        self.pinned, self.threads, self.prepared = 0, set(), []

    def prepare(self) -> None:
        self.prepared.append(threading.current_thread())

    def pin(self, address: int, length: int) -> bool:
        self.pinned += length
        self.threads.add(threading.current_thread())
        return True

    def unpin(self, address: int) -> None:
        self.pinned -= 1


def test_memory_is_page_locked_ahead_in_a_thread_and_up_to_the_limit():
    pinner = Pinner()
    pool = Pool(4096, 4096 * 20, pinner)
    pool.expect(4096 * 10)
    settled(lambda: pool.allocated == 4096 * 16)
    pool.expect(4096 * 1000)
    settled(lambda: pool.allocated == 4096 * 20)
    assert pinner.pinned == pool.allocated
    assert pinner.prepared == [threading.current_thread()] * 2
    assert threading.current_thread() not in pinner.threads


def test_without_a_gpu_nothing_is_taken_ahead():
    pool = Pool(4096, 4096 * 20)
    pool.expect(4096 * 10)
    assert pool.allocated == 0


def settled(true) -> None:
    give_up = time.monotonic() + 20
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.005)

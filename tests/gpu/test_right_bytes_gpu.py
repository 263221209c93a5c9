"""On a real GPU: pinned pool, side stream, events, the wait of the training's stream, and the right bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gpu_training import LONG, WIDTH, Training, delay_copies, load, make_engine, on_cpu, save
from small_training import differences

from slurm_ft.vendor.datastates._engine.device import PORTABLE, CudaPinner

COPIES = ("lazy", "eager")


@pytest.fixture
def training() -> Training:
    return Training()


@pytest.mark.parametrize("copy", COPIES)
def test_steps_taken_while_the_checkpoint_is_written_do_not_show_in_it(
    copy: str, training: Training, tmp_path: Path
) -> None:
    engine = make_engine(tmp_path, training, copy=copy)
    save(engine, training)  # the pool and the side stream exist from now on
    load(engine)
    training.step()
    expected = on_cpu(training.state())
    delay_copies(engine)
    save(engine, training, 2)
    assert engine.status.lazy == (copy == "lazy")
    assert engine.status.blocking_bytes == 0
    training.step(3)
    assert differences(expected, load(engine, 2)) == []
    assert differences(expected, on_cpu(training.state())) != []


def test_without_the_wait_on_the_gpu_the_same_save_is_torn(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: what the test above sees is the doing of `hold_training`."""
    engine = make_engine(tmp_path, training, copy="lazy")
    save(engine, training)
    load(engine)
    training.step()
    expected = on_cpu(training.state())
    monkeypatch.setattr("slurm_ft.vendor.datastates._engine.device.Device.hold_training", lambda *_: None)
    delay_copies(engine)
    save(engine, training, 2)
    training.step(3)
    assert differences(expected, load(engine, 2)) != []


def test_the_training_thread_does_not_wait_for_the_copies(training: Training, tmp_path: Path) -> None:
    """Save and step return while the side stream is still idling: only the GPU's own queue waits."""
    engine = make_engine(tmp_path, training, copy="lazy")
    save(engine, training)
    load(engine)
    training.step()
    delay_copies(engine)
    save(engine, training, 2)
    last = engine._flight.snapshot._queued[-1]
    training.step()
    assert not any(event.query() for event in last.events.values())
    load(engine, 2)


def test_the_copies_wait_for_what_the_training_has_queued(training: Training, tmp_path: Path) -> None:
    engine = make_engine(tmp_path, training, copy="lazy")
    before = on_cpu(training.model.state_dict())
    torch.cuda._sleep(LONG)
    with torch.no_grad():
        for parameter in training.model.parameters():
            parameter.add_(1)
    save(engine, training)
    saved = load(engine)["model"]
    assert all(torch.equal(saved[name], value + 1) for name, value in before.items())


def test_a_tensor_that_is_freed_after_the_save_keeps_its_bytes(training: Training, tmp_path: Path) -> None:
    """What a saver gathered is freed at once; the allocator must not give its memory away before the copy."""
    engine = make_engine(tmp_path, training, copy="lazy")
    save(engine, training)
    load(engine)
    gathered = torch.full((16 * WIDTH, WIDTH), 3.0, device="cuda")
    delay_copies(engine)

    def write(capture: object) -> None:
        nonlocal gathered
        capture.torch_save(gathered, capture.directory / "gathered.pt")
        del gathered

    engine.save(2, write)
    others = [torch.full((16 * WIDTH, WIDTH), 9.0, device="cuda") for _ in range(4)]
    assert load(engine, 2, "gathered.pt").unique().tolist() == [3.0]
    assert others[0][0, 0].item() == 9.0


def test_the_pool_is_page_locked(training: Training, tmp_path: Path) -> None:
    engine = make_engine(tmp_path, training, copy="lazy")
    save(engine, training)
    load(engine)
    buffer = engine._pool.take()
    assert torch.frombuffer(buffer.view, dtype=torch.uint8).is_pinned()
    engine._pool.give_back([buffer])


def test_memory_that_cannot_be_page_locked_costs_speed_and_nothing_else(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real failure of cudaHostRegister: its error must not come up in the training's next kernel."""
    page = torch.empty(1 << 20, dtype=torch.uint8)
    assert int(torch.cuda.cudart().cudaHostRegister(page.data_ptr(), page.nbytes, PORTABLE)) == 0
    pin = CudaPinner.pin
    monkeypatch.setattr(CudaPinner, "pin", lambda self, *_: pin(self, page.data_ptr(), page.nbytes))  # a second time
    engine = make_engine(tmp_path, training, copy="lazy")
    expected = on_cpu(training.state())
    save(engine, training)
    training.step(2)
    assert differences(expected, load(engine)) == []
    assert int(torch.cuda.cudart().cudaHostUnregister(page.data_ptr())) == 0


@pytest.mark.parametrize("size", [0, 1 / 32])
def test_a_pool_without_room_streams(training: Training, tmp_path: Path, size: float) -> None:
    engine = make_engine(tmp_path, training, copy="lazy", host_cache_size=size)
    expected = on_cpu(training.state())
    save(engine, training)
    training.step(2)
    assert differences(expected, load(engine)) == []


def test_the_debug_mode_passes_an_honest_training(training: Training, tmp_path: Path) -> None:
    engine = make_engine(tmp_path, training, debug_hash=True)
    save(engine, training)
    training.step(3)
    load(engine)


def test_safetensors_and_dcp_files_have_the_gpus_bytes(training: Training, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    engine = make_engine(tmp_path, training, copy="lazy")
    weights = training.model.state_dict()
    expected = on_cpu(weights)

    def write(capture: object) -> None:
        capture.save_safetensors(weights, capture.directory / "model.safetensors")
        dcp.save(weights, storage_writer=capture.dcp_writer(capture.directory / "dcp"), no_dist=True)

    engine.save(1, write)
    training.step(3)
    assert engine.wait(60)
    directory = engine.root / "checkpoint-1"
    assert differences(expected, safetensors.load_file(directory / "model.safetensors")) == []
    loaded = {name: torch.zeros_like(value) for name, value in expected.items()}
    dcp.load(loaded, checkpoint_id=directory / "dcp", no_dist=True)
    assert differences(expected, loaded) == []


def test_a_training_step_in_a_cuda_graph_is_saved_whole(tmp_path: Path) -> None:
    """Its replays fire no optimizer hook: the training's stream waits for the copies behind the save itself."""
    training = Training(layers=2)
    training.optimizer = torch.optim.AdamW(training.model.parameters(), lr=0.01, capturable=True)
    batch = torch.randn(8, WIDTH, device="cuda")

    def step() -> None:
        training.optimizer.zero_grad(set_to_none=True)
        training.model(batch).pow(2).mean().backward()
        training.optimizer.step()

    engine = make_engine(tmp_path, training, copy="lazy")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    save(engine, training)
    load(engine)
    graph.replay()
    expected = on_cpu(training.state())
    delay_copies(engine)
    save(engine, training, 2)
    assert not engine.status.lazy
    for _ in range(3):
        graph.replay()
    assert differences(expected, load(engine, 2)) == []

"""NVML's events in the watcher: the real nvidia-ml-py over the stub, in the real child process."""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvml_stub import FIRST, SECOND, NvmlStub

from slurm_ft.classify.gpu_state_facts import GPU_STATE_FACTS
from slurm_ft.config import Config
from slurm_ft.errors import SlurmFtError
from slurm_ft.model import Event, EventKind
from slurm_ft.node import live
from slurm_ft.node.live import LiveSources
from slurm_ft.node.watch import is_fatal
from slurm_ft.sensors import nvml, nvml_watch
from slurm_ft.sensors.nvml_watch import NAMES, NvmlWatch, event_of

LOG = logging.getLogger("test_nvml_watch")
ON = Config(nvml_events=True)


def reap(source: live.LiveSource) -> None:
    """Wait for a killed child, so that no other test meets it."""
    end = time.monotonic() + 20
    while not source.gone() and time.monotonic() < end:
        time.sleep(0.01)
    assert source.gone()


class Watched:
    """What the watcher's loop does with its live sources."""

    def __init__(self) -> None:
        self.poll = select.poll()
        self.sources = LiveSources(ON, LOG, self.poll)

    def turn(self, milliseconds: int = 100) -> list[Event]:
        self.sources.tend()
        return [event for fd, _ in self.poll.poll(milliseconds) for event in self.sources.news(fd)]

    def until(self, count: int, seconds: float = 20.0) -> list[Event]:
        found: list[Event] = []
        end = time.monotonic() + seconds
        while len(found) < count and time.monotonic() < end:
            found += self.turn()
        return found

    @property
    def child(self) -> NvmlWatch | None:
        source = self.sources._slots[0].source
        assert source is None or isinstance(source, NvmlWatch)
        return source


@pytest.fixture
def watched(nvml_stub: NvmlStub) -> Iterator[Watched]:
    made = Watched()
    yield made
    made.sources.close()
    for slot in made.sources._slots:
        for source in filter(None, (slot.source, slot.ended)):
            reap(source)


def test_an_xid_arrives_with_its_gpu(nvml_stub: NvmlStub, watched: Watched) -> None:
    nvml_stub.answers("event 1 once:0 8 79")
    (event,) = watched.until(1)
    assert (event.kind, event.code, event.pci) == (EventKind.XID, 79, SECOND)
    assert event.source == f"NVML event: GPU {SECOND}: Xid 79"
    assert is_fatal(event)


def test_each_other_event_has_a_row(nvml_stub: NvmlStub, watched: Watched) -> None:
    nvml_stub.answers(*(f"event 0 once:0 {kind} 0" for kind in NAMES))
    events = watched.until(len(NAMES))
    assert [event.name for event in events] == [name for name, _ in NAMES.values()]
    assert {event.name for event in events} <= GPU_STATE_FACTS.keys()
    assert {event.name for event in events if is_fatal(event)} == {
        "ecc_uncorrected_now", "row_remap_failure", "poison_contained", "poison_fatal", "gpu_unavailable"
    }  # fmt: skip


def test_events_that_say_nothing_of_a_fault_are_not_asked_for(nvml_stub: NvmlStub, watched: Watched) -> None:
    nvml_stub.answers("event 0 once:0 16 0", "event 0 once:0 32768 1", "event 0 once:0 8 48")
    (event,) = watched.until(1)
    assert event.code == 48


def test_a_gpu_that_is_lost_already_keeps_no_other_from_being_watched(nvml_stub: NvmlStub, watched: Watched) -> None:
    nvml_stub.answers("handle 0 15", "event 1 once:0 8 74")
    (event,) = watched.until(1)
    assert event.pci == SECOND


@pytest.mark.parametrize("call", ["init", "event_set", "event"])
def test_an_nvml_that_hangs_is_given_up_and_never_waited_for(
    nvml_stub: NvmlStub, watched: Watched, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    nvml_stub.answers(f"hang - {call}")
    watched.turn()
    child = watched.child
    assert child is not None
    monkeypatch.setattr(nvml_watch, "SILENCE_S", 0.0)
    pause = watched.sources.tend()
    assert watched.child is None
    assert pause is not None
    assert round(pause) == live.AGAIN_FIRST
    reap(child)


def test_one_that_ends_is_asked_again_later_and_then_works(
    nvml_stub: NvmlStub, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    nvml_stub.answers("event - 15")
    end = time.monotonic() + 20
    watched.turn()
    while watched.child is not None and time.monotonic() < end:
        watched.turn()
    assert "ended with error 15" in caplog.text
    ended = watched.sources._slots[0].ended
    assert ended is not None
    reap(ended)
    watched.sources._slots[0].open_at = 0.0
    nvml_stub.answers("event 0 once:0 8 79")
    assert [event.pci for event in watched.until(1)] == [FIRST]


def test_no_second_child_beside_one_that_cannot_be_killed(
    nvml_stub: NvmlStub, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.turn()
    monkeypatch.setattr(nvml_watch, "SILENCE_S", 0.0)
    monkeypatch.setattr(NvmlWatch, "gone", lambda _: False)
    watched.sources.tend()
    watched.sources._slots[0].open_at = 0.0
    watched.sources.tend()
    assert watched.child is None
    monkeypatch.undo()


def test_it_ends_with_the_watcher(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    nvml_stub.answers()
    watcher = os.fork()
    if watcher == 0:
        child = NvmlWatch()
        (tmp_path / "child").write_text(str(child._child))
        signal.pause()
    note, end = tmp_path / "child", time.monotonic() + 30
    while not (note.exists() and note.read_text()):
        time.sleep(0.01)
    os.kill(watcher, signal.SIGKILL)
    os.waitpid(watcher, 0)
    place = Path("/proc") / note.read_text() / "status"
    while place.exists() and "State:\tZ" not in place.read_text() and time.monotonic() < end:
        time.sleep(0.1)
    assert not place.exists() or "State:\tZ" in place.read_text()


def test_off_opens_nothing_and_needs_no_timer() -> None:
    assert LiveSources(Config(), LOG, select.poll()).tend() is None


def test_a_missing_binding_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(nvml, "BINDING", "no_such_module_at_all")
    with pytest.raises(SlurmFtError):
        NvmlWatch()
    assert LiveSources(ON, LOG, select.poll()).tend() is None
    assert "nvidia-ml-py is not installed" in caplog.text


@given(st.binary(max_size=200))
def test_no_line_breaks_the_parser(line: bytes) -> None:
    event_of(nvml_watch._entry(line))


@given(st.integers(), st.integers(), st.text(max_size=20))
def test_every_number_is_taken(kind: int, data: int, pci: str) -> None:
    event = event_of({"type": kind, "data": data, "pci": pci})
    assert event is None or event.code in (data, None)

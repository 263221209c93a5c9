from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.model import Event, EventKind
from slurm_ft.node import event_file
from slurm_ft.node.event_file import LIVE, RecordedEvent

FELL = Event(EventKind.XID, 79, "0000:3b:00", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 100.5)
MMU = Event(EventKind.XID, 31, "0000:3b:00", "NVRM: Xid (PCI:0000:3b:00): 31, MMU Fault", 101.0)


def recorded(sequence: int, event: Event = FELL, *attempts: str, boot: str = "b1") -> RecordedEvent:
    return RecordedEvent(boot, sequence, 1000.0 + sequence, event, attempts)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return event_file.path_of(tmp_path, "n1")


def test_what_was_appended_is_read_in_order(path: Path) -> None:
    first, second, third = recorded(1, FELL, "12.0", "13.1"), recorded(2, MMU), recorded(3)
    event_file.append(path, [first, second])
    event_file.append(path, [third])
    assert event_file.read(path) == [first, second, third]
    assert path.stat().st_mode & 0o777 == 0o640


def test_no_file_holds_no_events(path: Path) -> None:
    assert event_file.read(path) == []
    assert event_file.evidence_of(path, "12.0", "b1", 0.0) is None


def test_a_torn_line_costs_neither_the_one_before_nor_the_one_behind(path: Path) -> None:
    event_file.append(path, [recorded(1)])
    with path.open("ab") as file:
        file.write(b'{"v":1,"boot":"b1","se')
    event_file.append(path, [recorded(2)])
    assert [one.sequence for one in event_file.read(path)] == [1, 2]


@given(st.binary(max_size=300))
def test_no_damage_makes_reading_fail(tmp_path_factory: pytest.TempPathFactory, damage: bytes) -> None:
    path = tmp_path_factory.mktemp("events") / "n1.jsonl"
    path.write_bytes(damage)
    event_file.append(path, [recorded(7)])
    assert event_file.read(path)[-1] == recorded(7)


@pytest.mark.parametrize("line", ["[]", "1", '{"v":1}', '{"boot":1,"seq":"x"}', '{"seq":1e999}'])
def test_a_line_of_another_shape_is_passed_over(path: Path, line: str) -> None:
    event_file.append(path, [recorded(1)])
    with path.open("a") as file:
        file.write(f"{line}\n")
    assert event_file.read(path) == [recorded(1)]


def test_a_flood_of_one_cause_pushes_no_other_out(path: Path) -> None:
    event_file.append(path, [recorded(0, FELL, "12.0")], max_size=20_000)
    for number in range(1, 1000):
        event_file.append(path, [recorded(number, MMU, "12.0")], max_size=20_000)
        assert path.stat().st_size <= 20_000
    kept = event_file.read(path)
    assert kept[0] == recorded(0, FELL, "12.0")
    assert kept[-1].sequence == 999


def test_many_causes_are_bounded_too_and_the_newest_stay(path: Path) -> None:
    for number in range(300):
        event = Event(EventKind.XID, number, "0000:3b:00", "x" * 400, float(number))
        event_file.append(path, [recorded(number, event)], max_size=20_000)
    assert path.stat().st_size <= 20_000
    assert event_file.read(path)[-1].sequence == 299


def test_evidence_is_of_one_attempt_only(path: Path) -> None:
    event_file.append(path, [recorded(1, FELL, "12.0"), recorded(2, MMU, "12.1", "13.0")])
    found = event_file.evidence_of(path, "12.0", "b1", 0.0)
    assert found is not None
    assert (found.sensor, found.readable, found.events) == ("event_file", True, (FELL,))
    assert event_file.evidence_of(path, "2.0", "b1", 0.0) is None


def test_times_of_an_earlier_boot_lie_before_this_one(path: Path) -> None:
    event_file.append(path, [recorded(500, FELL, "12.0", boot="b0"), recorded(1, MMU, "12.0")])
    found = event_file.evidence_of(path, "12.0", "b1", boot_time=1600.0)
    assert found is not None
    assert [event.at for event in found.events] == [-100.0, 101.0]


def test_live_only_leaves_out_what_the_kernel_log_shows(path: Path) -> None:
    event_file.append(path, [recorded(1, FELL, "12.0")])
    assert event_file.evidence_of(path, "12.0", "b1", 0.0, live_only=True) is None
    event_file.append(path, [recorded(LIVE, MMU, "12.0")])
    found = event_file.evidence_of(path, "12.0", "b1", 0.0, live_only=True)
    assert found is not None
    assert found.events == (MMU,)


def test_a_file_that_cannot_be_read_is_not_clean(path: Path) -> None:
    path.mkdir(parents=True)
    found = event_file.evidence_of(path, "12.0", "b1", 0.0)
    assert found is not None
    assert not found.readable

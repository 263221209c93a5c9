"""The watcher's loop without a kernel log and without Slurm."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node

import slurm_ft
from slurm_ft import journal
from slurm_ft.config import Config, Mode
from slurm_ft.errors import SlurmFtError
from slurm_ft.journal_entry import Stage
from slurm_ft.model import Event, EventKind
from slurm_ft.node import event_file, single
from slurm_ft.node.hanging import Place
from slurm_ft.node.waiting import RETRY_FIRST, RETRY_MAX, Waiting
from slurm_ft.node.watch import ENDS_WITHIN, Watcher, is_fatal
from slurm_ft.sensors import kernel_follow
from slurm_ft.sensors.kernel_follow import KernelFollower, Sighting
from slurm_ft.sensors.kernel_log import running_boot
from slurm_ft.slurm.protocol import JobRecord

MARKER = "slurm_ft: start job=12.0 node=n1 id=90.00-7"
START = f"12,99,90000000,-;{MARKER}"
FELL_OFF = "3,100,100000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
MMU = "3,101,100000001,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=python, MMU Fault"
CLEANUP = FELL_OFF.replace("79, pid=1, GPU has fallen off the bus.", "45, pid=1, name=python, Ch 00000008")


class Log:
    """A kernel log: what was written is followed by the watcher and read by the epilog's sensor."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.new: list[str] = []
        path.touch()

    def write(self, *records: str) -> None:
        self.new += records
        with self.path.open("a") as file:
            file.writelines(f"{record}\n" for record in records)

    def read(self) -> Iterator[Sighting]:
        records, self.new = self.new, []
        found = (kernel_follow._sighting(record.encode()) for record in records)
        return iter([one for one in found if one is not None])


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "kmsg")


@pytest.fixture
def slurm(job_record: JobRecord) -> FakeSlurm:
    job = replace(job_record, state="RUNNING", nodes="n1", reason="", ended=None)
    return FakeSlurm.of(job, node("n1", "mixed"))


@pytest.fixture
def place(tmp_path: Path, log: Log, slurm: FakeSlurm) -> Place:
    config = Config(
        mode=Mode.ACT,
        kernel_log=log.path,
        gpu_inventory={"n1": ("0000:3b:00.0", "0000:5e:00.0")},
        state_dir=tmp_path / "state",
        watch_grace=0,
    )
    (tmp_path / "attempts").mkdir()
    logger = logging.getLogger("test_watch")
    return Place(config, "n1", tmp_path, slurm, logger)


def begin(place: Place, *, job: int = 12, marker: str = MARKER, gpus: str = "0", uptime: float = 90.0) -> Path:
    note = place.run_dir / "attempts" / f"n1.{job}"
    note.write_text(f"{marker}\n{running_boot()}\n{uptime}\n{gpus}\n0\n")
    return note


def watcher(place: Place, log: Log) -> Watcher:
    made = Watcher(place, log)  # type: ignore[arg-type]
    made.resume()
    return made


def killed(slurm: FakeSlurm) -> bool:
    return ("kill_batch_script", "12") in slurm.changes


def test_a_fault_of_a_running_job_drains_the_node_and_ends_the_job(place: Place, log: Log, slurm: FakeSlurm) -> None:
    log.write(START)
    begin(place)
    watch = watcher(place, log)
    log.write(FELL_OFF)
    watch.take_news()
    pause = watch.look()
    assert pause is not None
    assert pause > ENDS_WITHIN / 2
    assert slurm.node_records["n1"].draining
    assert killed(slurm)
    (entry,) = journal.entries(place.config.state_dir)
    assert (entry.stage, entry.key.raw_id, entry.decision and entry.decision.cause) == (Stage.WATCH, 12, "xid79")


MEMORY = "0,102,100000002,-;EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0 (channel:2 slot:0)"


def test_a_fault_of_the_node_drains_it_and_the_job_goes_on(place: Place, log: Log, slurm: FakeSlurm) -> None:
    log.write(START)
    begin(place)
    watch = watcher(place, log)
    log.write(MEMORY)
    watch.take_news()
    assert watch.look() is None
    assert slurm.node_records["n1"].draining
    assert "edac_uncorrected" in slurm.node_records["n1"].reason
    assert not killed(slurm)
    (recorded,) = event_file.read(event_file.path_of(place.config.state_dir, "n1"))
    assert (recorded.event.name, recorded.attempts) == ("edac_uncorrected", ("12.0",))
    log.write(MEMORY.replace("102,", "103,"))
    watch.take_news()
    assert watch.look() is None
    log.write(FELL_OFF.replace("3,100,", "3,104,"))
    watch.take_news()
    watch.look()
    assert killed(slurm)


def test_the_grace_time_is_waited_for(place: Place, log: Log, slurm: FakeSlurm) -> None:
    place = replace(place, config=replace(place.config, watch_grace=500))
    begin(place)
    watch = watcher(place, log)
    assert watch.look() is None
    log.write(START, FELL_OFF)
    watch.take_news()
    pause = watch.look()
    assert pause is not None
    assert 400 < pause <= 500
    assert slurm.calls == []


def test_an_attempt_that_ended_in_time_is_the_epilogs(place: Place, log: Log, slurm: FakeSlurm) -> None:
    note = begin(place)
    watch = watcher(place, log)
    log.write(START, FELL_OFF)
    watch.take_news()
    note.unlink()
    assert watch.look() is None
    assert slurm.calls == []


@pytest.mark.parametrize("records", [(START, CLEANUP), (START, MMU), (START, FELL_OFF.replace("3b", "5e"))])
def test_no_fault_of_its_own_hardware_touches_nothing(
    place: Place, log: Log, slurm: FakeSlurm, records: tuple[str, ...]
) -> None:
    begin(place)
    watch = watcher(place, log)
    log.write(*records)
    watch.take_news()
    assert watch.look() is None
    assert slurm.calls == []


@pytest.mark.parametrize("marker", [MARKER, ""])
def test_a_fault_from_before_the_attempt_convicts_nobody(place: Place, log: Log, slurm: FakeSlurm, marker: str) -> None:
    log.write(FELL_OFF, START.replace(",99,90", ",200,200"))
    begin(place, marker=marker, uptime=200.0)
    watch = watcher(place, log)
    watch.take_news()
    assert watch.look() is None
    assert slurm.calls == []
    (one,) = event_file.read(event_file.path_of(place.config.state_dir, "n1"))
    assert one.attempts == ()


def test_a_fault_behind_a_marker_that_is_no_longer_in_the_log_counts(place: Place, log: Log, slurm: FakeSlurm) -> None:
    begin(place)
    watch = watcher(place, log)
    log.write(FELL_OFF)
    watch.take_news()
    watch.look()
    assert killed(slurm)


def test_a_job_that_starts_while_the_log_is_read_is_not_convicted(place: Place, log: Log, slurm: FakeSlurm) -> None:
    """Its note is there and its marker is not read yet: the second look finds it behind the fault."""
    watch = watcher(place, log)
    log.write(FELL_OFF)
    attempts = watch._attempts

    def late() -> object:
        watch._attempts = attempts  # type: ignore[method-assign]
        begin(place)
        log.write(START.replace(",99,", ",150,"))
        return attempts()

    watch._attempts = late  # type: ignore[method-assign,assignment]
    watch.take_news()
    assert watch.look() is None
    assert slurm.calls == []


def test_an_event_is_recorded_once_also_by_the_next_watcher(place: Place, log: Log) -> None:
    begin(place)
    for _ in range(2):
        log.write(START, FELL_OFF)
        watcher(place, log).take_news()
    (one,) = event_file.read(event_file.path_of(place.config.state_dir, "n1"))
    assert (one.sequence, one.attempts, one.event.code) == (100, ("12.0",), 79)


def test_the_next_watcher_takes_up_what_waits(place: Place, log: Log, slurm: FakeSlurm) -> None:
    begin(place)
    log.write(START, FELL_OFF)
    watcher(place, log).take_news()
    second = watcher(place, log)
    second.look()
    assert killed(slurm)


def test_a_flood_is_not_stored_whole(place: Place, log: Log) -> None:
    begin(place)
    watch = watcher(place, log)
    log.write(START, *(MMU.replace(",101,", f",{number},") for number in range(200, 1200)))
    watch.take_news()
    assert len(event_file.read(event_file.path_of(place.config.state_dir, "n1"))) == event_file.KEPT_PER_CAUSE


@pytest.mark.parametrize("refused", ["nodes", "drain_node", "jobs", "kill_batch_script"])
def test_what_slurm_refuses_is_tried_again(place: Place, log: Log, slurm: FakeSlurm, refused: str) -> None:
    begin(place)
    watch = watcher(place, log)
    log.write(START, FELL_OFF)
    watch.take_news()
    slurm.refused.add(refused)
    pause = watch.look()
    assert pause is not None
    assert pause <= RETRY_FIRST
    slurm.refused.clear()
    watch._waiting._entries["12.0"].due = 0.0
    watch.look()
    assert killed(slurm)
    assert slurm.node_records["n1"].reason.count("job 12.0") == 1


def test_a_settled_job_is_not_touched_again(place: Place, log: Log, slurm: FakeSlurm) -> None:
    slurm.set_job("12", comment="mine")
    begin(place)
    watch = watcher(place, log)
    log.write(START, FELL_OFF)
    watch.take_news()
    watch.look()
    before = len(slurm.changes)
    log.write(FELL_OFF.replace(",100,", ",102,"))
    watch.take_news()
    assert watch.look() is None
    assert len(slurm.changes) == before
    assert not killed(slurm)


@pytest.mark.parametrize(("fields", "kills"), [({"state": "RUNNING"}, 2), ({"state": "COMPLETING"}, 1)])
def test_a_job_that_does_not_end_is_looked_at_again(
    place: Place, log: Log, slurm: FakeSlurm, fields: dict[str, object], kills: int
) -> None:
    note = begin(place)
    watch = watcher(place, log)
    log.write(START, FELL_OFF)
    watch.take_news()
    watch.look()
    slurm.set_job("12", **fields)
    watch._waiting._entries["12.0"].due = 0.0
    watch.look()
    assert slurm.changes.count(("kill_batch_script", "12")) == kills
    note.unlink()
    assert watch.look() is None


@pytest.mark.parametrize("fields", [{"state": "SUSPENDED"}, {"restarts": 1}, {"state": "PENDING", "restarts": 1}])
def test_what_does_not_run_any_more_is_not_ended(
    place: Place, log: Log, slurm: FakeSlurm, fields: dict[str, object]
) -> None:
    slurm.set_job("12", **fields)
    begin(place)
    watch = watcher(place, log)
    log.write(START, FELL_OFF)
    watch.take_news()
    watch.look()
    assert not killed(slurm)
    assert slurm.node_records["n1"].draining


def test_observe_changes_nothing(place: Place, log: Log, slurm: FakeSlurm) -> None:
    place = replace(place, config=replace(place.config, mode=Mode.OBSERVE))
    begin(place)
    watch = watcher(place, log)
    log.write(START, FELL_OFF)
    watch.take_news()
    watch.look()
    assert slurm.changes == []
    assert journal.entries(place.config.state_dir)[0].mode == "observe"


def test_an_array_task_is_found_by_its_own_id(place: Place, log: Log, slurm: FakeSlurm, job_record: JobRecord) -> None:
    """The id of an array's first task names all of them."""
    task = replace(slurm.job_records.pop("12"), address="12_3")
    slurm.job_records = {"12_4": replace(task, raw_id=13, address="12_4"), "12_3": task}
    begin(place)
    watch = watcher(place, log)
    log.write(START, FELL_OFF)
    watch.take_news()
    watch.look()
    assert ("kill_batch_script", "12_3") in slurm.changes


def test_a_full_disk_costs_the_record_and_not_the_job(place: Place, log: Log, slurm: FakeSlurm) -> None:
    place.config.state_dir.write_text("in the way")
    begin(place)
    watch = Watcher(place, log)  # type: ignore[arg-type]
    log.write(START, FELL_OFF)
    watch.take_news()
    watch.look()
    assert killed(slurm)


def test_another_source_concerns_those_that_run_now(place: Place, log: Log) -> None:
    begin(place)
    begin(place, job=13, gpus="1")
    watch = watcher(place, log)
    watch.take_live((Event(EventKind.XID, 79, "0000:3b:00", "NVML event: Xid 79"),))
    (one,) = event_file.read(event_file.path_of(place.config.state_dir, "n1"))
    assert (one.sequence, one.attempts) == (event_file.LIVE, ("12.0",))
    assert watch._waiting.next_due() is not None


@pytest.mark.parametrize(
    ("code", "fatal"), [(79, True), (48, True), (31, False), (45, False), (13, False), (63, False)]
)
def test_which_xids_start_the_grace_time(code: int, fatal: bool) -> None:
    assert is_fatal(Event(EventKind.XID, code, "0000:3b:00", f"NVRM: Xid (PCI:0000:3b:00): {code}, x")) is fatal


class TestWaiting:
    def test_the_first_fault_sets_the_time(self) -> None:
        waiting = Waiting()
        assert waiting.add("1.0", 10.0)
        assert not waiting.add("1.0", 20.0)
        assert (waiting.due(9.9), waiting.due(10.0), waiting.next_due()) == ((), ("1.0",), 10.0)

    def test_the_pauses_grow_to_a_bound(self) -> None:
        waiting = Waiting()
        waiting.add("1.0", 0.0)
        pauses = [waiting.retry("1.0", 100.0) for _ in range(12)]
        assert pauses == sorted(pauses)
        assert (pauses[0], pauses[-1]) == (RETRY_FIRST, RETRY_MAX)
        assert waiting.next_due() == 100.0 + RETRY_MAX

    def test_ended_attempts_are_forgotten_and_their_ids_may_return(self) -> None:
        waiting = Waiting()
        waiting.add("1.0", 0.0)
        waiting.settle("1.0")
        waiting.add("2.0", 0.0)
        waiting.keep(frozenset())
        assert waiting.next_due() is None
        assert waiting.add("1.0", 5.0)

    def test_a_dropped_one_may_come_again(self) -> None:
        waiting = Waiting()
        waiting.add("1.0", 0.0)
        waiting.drop("1.0")
        assert waiting.add("1.0", 5.0)


class TestSingle:
    def test_a_second_is_refused_with_the_name_of_the_first(self, tmp_path: Path) -> None:
        held = single.hold(tmp_path / "run" / "lock")
        with pytest.raises(SlurmFtError, match=f"process {os.getpid()} watches this node already"):
            single.hold(tmp_path / "run" / "lock")
        os.close(held)
        os.close(single.hold(tmp_path / "run" / "lock"))

    def test_a_place_that_cannot_be_written_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "run").touch()
        with pytest.raises(SlurmFtError, match="run"):
            single.hold(tmp_path / "run" / "lock")


class TestFollower:
    @pytest.fixture
    def pipe(self, tmp_path: Path) -> Iterator[tuple[KernelFollower, int]]:
        os.mkfifo(tmp_path / "kmsg")
        follower = KernelFollower(tmp_path / "kmsg")
        writer = os.open(tmp_path / "kmsg", os.O_WRONLY)
        yield follower, writer
        follower.close()
        os.close(writer)

    @pytest.mark.parametrize(
        ("record", "expected"),
        [
            (FELL_OFF, (100, 79, "")),
            (START, (99, None, MARKER)),
            (START.replace("12,", "4,", 1), None),  # the kernel quotes it
            ("6,5,1,-;usb 1-1: new device", None),
            ("garbage;NVRM: Xid", None),
            (FELL_OFF.replace(",-;", ",+;"), None),
        ],
    )
    def test_reads_what_matters(
        self, pipe: tuple[KernelFollower, int], record: str, expected: tuple[int, int | None, str] | None
    ) -> None:
        follower, writer = pipe
        assert list(follower.read()) == []
        os.write(writer, f"{record}\n SUBSYSTEM=x\n".encode())
        found = [(one.sequence, one.event and one.event.code, one.marker) for one in follower.read()]
        assert found == ([] if expected is None else [expected])


def test_sigterm_ends_it_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    keep_open = os.open(tmp_path / "kmsg", os.O_RDWR)
    config = tmp_path / "slurm_ft.yaml"
    config.write_text(f"kernel_log: {tmp_path}/kmsg\nstate_dir: {tmp_path}/state\nlog_file: {tmp_path}/log\n")
    environ = {
        "PYTHONPATH": str(Path(slurm_ft.__file__).parents[1]),
        "SLURM_FT_CONFIG": str(config),
        "SLURM_FT_RUN_DIR": str(tmp_path / "run"),
    }
    command = [sys.executable, "-m", "slurm_ft.cli.main", "watch", "--node", "n1"]
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "watching node n1" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    os.close(keep_open)


def test_a_log_that_is_not_there_is_said_with_what_to_do(tmp_path: Path, place: Place) -> None:
    from slurm_ft.node.watch import watch  # noqa: PLC0415

    with pytest.raises(SlurmFtError, match="missing: No such file"):
        watch(replace(place, config=replace(place.config, kernel_log=tmp_path / "missing")))

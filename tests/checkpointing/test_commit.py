"""A checkpoint is committed in one step, or is not there; what is older stays the newest valid one until then."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
import torch
from small_training import WIDTH, load, save

from slurm_ft.checkpoints import Policy, choose
from slurm_ft.checkpoints.finding import Level
from slurm_ft.vendor.datastates._engine import commit, hashing, retention
from slurm_ft.vendor.datastates._engine import writer as writer_module
from slurm_ft.vendor.datastates._engine.paths import committed, temporary_name
from slurm_ft.vendor.datastates._engine.run_identity import Owner, is_gone, this_process
from slurm_ft.vendor.datastates._engine.settings import parse
from slurm_ft.vendor.datastates._engine.status import Outcome


class TwoRanks:
    """Two engines in two threads of one process stand for two ranks: what they agree on meets here."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2, timeout=20)
        self._values: list[object] = [None, None]

    def exchange(self, rank: int, value: object) -> list[object]:
        self._values[rank] = value
        self._barrier.wait()
        values = list(self._values)
        self._barrier.wait()
        return values

    def rank(self, number: int):
        shared = self

        class Rank:
            rank, world_size = number, 2

            def minimum(self, value):
                return min(shared.exchange(number, value))

            def broadcast(self, text):
                return shared.exchange(number, text)[0]

        return Rank()


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} if root.exists() else set()


def test_the_manifest_tells_size_and_digest_of_every_file(training, make_engine):
    engine = make_engine()

    def write(capture):
        capture.torch_save(training.state(), capture.directory / "optimizer.pt")
        (capture.directory / "sub").mkdir()
        (capture.directory / "sub" / "config.json").write_text("{}")
        capture.torch_save({}, capture.directory / "sub" / "empty.pt")

    engine.save(2, write)
    load(engine, 2, "optimizer.pt")
    directory = engine.root / "checkpoint-2"
    content = json.loads((directory / "MANIFEST.json").read_bytes())
    assert set(content["files"]) == {"optimizer.pt", "sub/config.json", "sub/empty.pt"}
    for name, entry in content["files"].items():
        assert (entry["size"], entry["digests"]) == hashing.file_digests(directory / name)
    marker = json.loads((directory / "COMMITTED").read_bytes())
    assert marker["manifest_sha256"] == hashing.sha256((directory / "MANIFEST.json").read_bytes())
    assert names(engine.root) == {"checkpoint-2", "latest"}
    assert (engine.root / "latest").read_text() == "checkpoint-2\n"


def newest_valid(root: Path) -> int | None:
    """Ask the checkpoint library, which reads every byte, without its memory of earlier verdicts."""
    found = choose(root, "concurrent", Policy(level=Level.DEEP, cache=False, settle_seconds=0, budget_seconds=None))
    return found.point.step if found.point else None


@pytest.mark.parametrize("damage", ["flip", "zero", "truncate", "delete", "extend"])
@pytest.mark.parametrize("name", ["optimizer.pt", "config.json", "MANIFEST.json", "COMMITTED"])
def test_damage_to_any_file_is_caught_and_the_older_checkpoint_is_chosen(training, make_engine, name, damage):
    engine = make_engine()

    def write(capture):
        capture.torch_save(training.state(), capture.directory / "optimizer.pt")
        (capture.directory / "config.json").write_text('{"hidden_size": 320}')

    for step in (1, 2):
        engine.save(step, write)
        load(engine, step, "optimizer.pt")
    assert newest_valid(engine.root) == 2
    hurt(engine.root / "checkpoint-2" / name, damage)
    assert newest_valid(engine.root) == 1


def hurt(path: Path, damage: str) -> None:
    size = path.stat().st_size
    if damage == "delete":
        path.unlink()
        return
    with path.open("r+b") as file:
        if damage == "truncate":
            file.truncate(size // 2)
        elif damage == "extend":
            file.seek(size)
            file.write(b"x")
        else:
            file.seek(size // 2)
            byte = file.read(1)[0]
            file.seek(size // 2)
            file.write(bytes([byte ^ 1]) if damage == "flip" else bytes(4096))


def test_two_ranks_make_one_checkpoint(training, tmp_path, make_engine):
    shared = TwoRanks()
    engines = [make_engine(ranks=shared.rank(number)) for number in (0, 1)]
    both(lambda n: engines[n].save(7, lambda c: c.torch_save({"rank": n}, c.directory / f"rank{n}.pt")))
    assert load(engines[0], 7, "rank0.pt") == {"rank": 0}
    assert load(engines[0], 7, "rank1.pt") == {"rank": 1}
    content = json.loads((engines[0].root / "checkpoint-7" / "MANIFEST.json").read_bytes())
    assert {name: entry["rank"] for name, entry in content["files"].items()} == {"rank0.pt": 0, "rank1.pt": 1}
    assert content["world_size"] == 2


def test_one_rank_that_fails_costs_the_checkpoint_and_nothing_else(training, make_engine):
    shared = TwoRanks()
    engines = [make_engine(ranks=shared.rank(number)) for number in (0, 1)]

    def write(number, capture):
        if number == 1:
            raise OSError(28, "No space left on device")
        capture.torch_save(training.state(), capture.directory / "rank0.pt")

    outcomes = both(lambda n: engines[n].save(7, lambda c: write(n, c)))
    assert outcomes == [Outcome.STARTED, Outcome.FAILED]
    assert engines[0].wait(20)
    assert "rank 1 could not save step 7" in engines[0].status.last_error
    assert names(engines[0].root) == set()


def test_a_rank_that_never_reports_is_not_waited_for_longer_than_set(training, make_engine, monkeypatch):
    shared = TwoRanks()
    engines = [make_engine(ranks=shared.rank(number), commit_timeout=0.3) for number in (0, 1)]
    report = commit.report
    monkeypatch.setattr(commit, "report", lambda *told: report(*told) if told[2].rank == 0 else None)
    both(lambda n: engines[n].save(7, lambda c: c.torch_save({}, c.directory / f"rank{n}.pt")))
    assert engines[0].wait(20)
    assert "rank 1 did not report" in engines[0].status.last_error


def test_a_rank_that_is_busy_makes_all_skip(training, make_engine, slow_workers):
    """A saver's collectives must be entered by all ranks or by none."""
    shared = TwoRanks()
    engines = [make_engine(ranks=shared.rank(number), copy="lazy") for number in (0, 1)]
    both(lambda n: engines[n].save(1, lambda c: c.torch_save(training.state() if n else {}, c.directory / f"{n}.pt")))
    calls = []
    outcomes = both(lambda n: engines[n].save(2, lambda c: calls.append(n)))
    assert outcomes == [Outcome.BUSY, Outcome.BUSY]
    assert calls == []


def both(call) -> list[object]:
    results: list[object] = [None, None]

    def run(number: int) -> None:
        results[number] = call(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def test_a_step_that_is_committed_already_is_not_saved_again(training, make_engine):
    first = make_engine()
    save(first, training)
    load(first, 2)
    before = (first.root / "checkpoint-2" / "MANIFEST.json").read_bytes()
    assert save(first, training) is Outcome.DUPLICATE
    again = make_engine()
    training.done = 2
    assert save(again, training) is Outcome.DUPLICATE
    assert (first.root / "checkpoint-2" / "MANIFEST.json").read_bytes() == before


def leave_behind(engine, step: int) -> None:
    """Make a committed checkpoint look like that of a process that has died."""
    path = engine.root / f"checkpoint-{step}" / "MANIFEST.json"
    content = json.loads(path.read_bytes())
    content["owner"]["started"] = 1
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("resumed", "outcome"), [(None, "STARTED"), (1, "STARTED"), (2, "DUPLICATE"), (3, "DUPLICATE")]
)
def test_a_dead_trainings_checkpoint_gives_way_unless_we_resumed_from_it_or_later(
    training, make_engine, resumed, outcome
):
    """Begun anew in a directory with old checkpoints, a crash must not resume into the old training."""
    first = make_engine()
    for step in (1, 2, 3):
        first.save(step, lambda c: c.torch_save({"old": True}, c.directory / "state.pt"))
        load(first, step)
        leave_behind(first, step)
    again = make_engine()
    if resumed:
        again.resumed_from(again.root / f"checkpoint-{resumed}")
    got = again.save(2, lambda c: c.torch_save({"old": False}, c.directory / "state.pt"))
    assert got is Outcome[outcome]
    assert load(again, 2) == {"old": got is Outcome.DUPLICATE}


def test_an_uncommitted_directory_of_that_name_gives_way(training, make_engine):
    engine = make_engine()
    half = engine.root / "checkpoint-2"
    half.mkdir(parents=True)
    (half / "state.pt").write_bytes(b"half")
    save(engine, training)
    load(engine, 2)
    assert [step for step, _ in committed(engine.root)] == [2]


def test_two_jobs_that_commit_one_step_leave_the_first_ones(training, make_engine, monkeypatch):
    """That is no failure of the second's: `max_failures` of them would end its saving."""
    first, second = make_engine(), make_engine(max_failures=1)
    gate = threading.Event()
    seal = commit.seal

    def late(run_dir, plan, records, **options):
        if plan.attempt == second._owner.attempt:
            gate.wait(20)
        return seal(run_dir, plan, records, **options)

    monkeypatch.setattr(commit, "seal", late)
    for engine, value in ((second, 2), (first, 1)):
        engine.save(5, lambda c, v=value: c.torch_save({"job": v}, c.directory / "state.pt"))
    assert load(first, 5) == {"job": 1}
    gate.set()
    assert second.wait(20)
    assert (second.status.skipped, second.status.failed, second.status.disabled) == (1, 0, False)
    assert load(first, 5) == {"job": 1}
    assert names(first.root) == {"checkpoint-5", "latest"}
    second.save(6, lambda c: c.torch_save({"job": 2}, c.directory / "state.pt"))
    assert load(second, 6) == {"job": 2}


def test_two_jobs_in_one_directory_delete_only_their_own(training, make_engine):
    mine, other = make_engine(keep_last=1), make_engine(keep_last=1)
    for step, engine in ((100, other), (1, mine), (2, mine), (200, other), (3, mine)):
        engine.save(step, lambda c: c.torch_save({}, c.directory / "state.pt"))
        load(engine, step)
    assert [step for step, _ in committed(mine.root)] == [200, 3]


# --- retention -------------------------------------------------------------------------------------------------------


def test_retention_keeps_the_last_and_the_multiples():
    settings = parse({"keep_last": 2, "keep_every": 100})
    assert retention.superseded([50, 100, 150, 200, 250], 250, settings) == [50, 150]


def test_retention_never_judges_what_is_above_the_newest():
    assert retention.superseded([10, 20, 900], 20, parse({"keep_last": 1})) == [10]


def test_keep_last_0_deletes_nothing():
    assert retention.superseded([1, 2, 3], 3, parse({"keep_last": 0})) == []


def test_the_one_resumed_from_and_the_protected_ones_stay(training, make_engine):
    engine = make_engine(keep_last=1)
    engine.protect(["checkpoint-2"])
    for step in (1, 2, 3, 4):
        engine.save(step, lambda c: c.torch_save({}, c.directory / "state.pt"))
        load(engine, step)
        if step == 1:
            engine.resumed_from(engine.root / "checkpoint-1")
    assert [step for step, _ in committed(engine.root)] == [4, 2, 1]


def test_nothing_is_deleted_for_a_save_that_fails(training, make_engine, monkeypatch):
    engine = make_engine(keep_last=1)
    save(engine, training)
    load(engine, 2)
    monkeypatch.setattr(commit, "seal", refuse)
    engine.save(3, lambda c: c.torch_save({}, c.directory / "state.pt"))
    assert engine.wait(20)
    assert [step for step, _ in committed(engine.root)] == [2]


def refuse(*_, **__):
    raise OSError(28, "No space left on device")


# --- what earlier attempts left --------------------------------------------------------------------------------------


def owner(**changed: object) -> Owner:
    values = {**this_process({}).encoded(), "attempt": "other", **changed}
    del values["schema"]
    return Owner(**values)


def test_a_dead_attempts_temporary_directory_is_removed(training, make_engine):
    engine = make_engine()
    left = engine.root / temporary_name(1, "other")
    left.mkdir(parents=True)
    (left / "owner.json").write_text(json.dumps(owner(started=1).encoded()))
    save(engine, training)
    load(engine, 2)
    assert not left.exists()


def test_a_living_jobs_temporary_directory_stays(training, make_engine):
    engine = make_engine()
    left = engine.root / temporary_name(1, "other")
    left.mkdir(parents=True)
    (left / "owner.json").write_text(json.dumps(owner().encoded()))
    save(engine, training)
    load(engine, 2)
    assert left.exists()


@pytest.mark.parametrize(
    ("changed", "gone"),
    [
        ({}, False),
        ({"started": 1}, True),
        ({"boot": "another"}, True),
        ({"host": "elsewhere", "started": 1}, False),
        ({"namespace": "a container's", "started": 1}, False),
        ({"run": "slurm-5", "host": "elsewhere", "restart": 0}, True),
        ({"run": "slurm-5", "host": "elsewhere", "restart": 1}, False),
        ({"run": "slurm-6", "host": "elsewhere", "restart": 0}, False),
    ],
)
def test_only_an_owner_that_certainly_died_counts_as_gone(changed, gone):
    me = this_process({"SLURM_JOB_ID": "5", "SLURM_RESTART_COUNT": "1"})
    assert is_gone(owner(**changed), me) is gone


def test_a_requeued_job_is_the_same_run_and_another_attempt():
    first, second = (this_process({"SLURM_JOB_ID": "5", "SLURM_RESTART_COUNT": n}) for n in "01")
    assert first.run == second.run == "slurm-5"
    assert first.attempt != second.attempt


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_writer_thread_that_dies_costs_the_checkpoint_and_nothing_else(training, make_engine, monkeypatch):
    engine = make_engine(max_failures=2)
    save(engine, training)
    load(engine, 2)
    monkeypatch.setattr(writer_module, "_write_all", refuse)
    for step in (3, 4):
        assert engine.save(step, lambda c: c.torch_save(torch.ones(9), c.directory / "s.pt")) is Outcome.STARTED
        assert engine.wait(20)
        training.step()
    assert engine.status.disabled
    assert engine.status.failed == 2
    assert "No space left" in engine.status.last_error
    assert engine.save(5, lambda c: None) is Outcome.DISABLED
    assert names(engine.root) == {"checkpoint-2", "latest"}


def test_failures_that_a_success_interrupts_do_not_disable(training, make_engine):
    engine = make_engine(max_failures=2)

    def fail(_):
        raise RuntimeError("no")

    for step in range(4):
        assert engine.save(2 * step, fail) is Outcome.FAILED
        engine.save(2 * step + 1, lambda c: c.torch_save({}, c.directory / "s.pt"))
        load(engine, 2 * step + 1, "s.pt") if not engine.status.last_error else engine.wait(20)
    assert not engine.status.disabled
    assert engine.status.committed == 4


def test_the_wall_clock_jumping_back_changes_nothing(training, make_engine, monkeypatch):
    engine = make_engine(keep_last=1, save_seconds=0.01)
    save(engine, training)
    load(engine, 2)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    time.sleep(0.02)
    assert engine.due(3)
    engine.save(3, lambda c: c.torch_save({}, c.directory / "state.pt"))
    load(engine, 3)
    assert [step for step, _ in committed(engine.root)] == [3]


def test_close_waits_for_the_checkpoint_in_flight(training, make_engine, slow_workers):
    engine = make_engine()
    save(engine, training)
    engine.close()
    assert [step for step, _ in committed(engine.root)] == [2]


def test_a_checkpoint_that_does_not_fit_into_the_time_left_is_given_up(training, make_engine, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(writer_module, "_write_all", lambda *_: gate.wait(20))
    engine = make_engine()
    save(engine, training)
    assert engine.finish_within(0.1) is False
    gate.set()
    assert engine.wait(20)
    assert names(engine.root) == set()


def test_skip_or_wait_while_the_last_one_is_being_written(training, make_engine, slow_workers):
    engine = make_engine(back_pressure="skip")
    state = {"w": torch.ones(WIDTH, WIDTH)}
    engine.save(1, lambda c: c.torch_save(state, c.directory / "state.pt"))
    assert engine.save(2, lambda c: None) is Outcome.BUSY
    assert engine.status.skipped == 1
    patient = make_engine(root=engine.root, back_pressure="wait")
    patient.save(3, lambda c: c.torch_save(state, c.directory / "state.pt"))
    assert patient.save(4, lambda c: c.torch_save(state, c.directory / "state.pt")) is Outcome.STARTED
    load(patient, 4)

"""The companion that reads committed checkpoints again: what it records, and what it and the training survive."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_ft.checkpoints import Verdict, choose
from slurm_ft.checkpoints.choose import Policy
from slurm_ft.checkpoints.validation import VALIDATION, read_validation
from slurm_ft.vendor.datastates._engine import companion
from slurm_ft.vendor.datastates._engine.companion import SOCKET_VARIABLE, start_where_missing
from slurm_ft.vendor.datastates._engine.paths import committed

VENDOR = Path(__file__).parents[2] / "slurm_ft" / "vendor"
GUARD = 60.0


def command(path: Path) -> list[str]:
    return [sys.executable, "-m", "datastates.validator", "--socket", str(path)]


@contextlib.contextmanager
def running(path: Path, **options):
    environment = {**os.environ, "PYTHONPATH": str(VENDOR)}
    process = subprocess.Popen(command(path), env=environment, stderr=subprocess.PIPE, text=True, **options)
    try:
        wait_until(lambda: answers(path) or process.poll() is not None)
        yield process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def answers(path: Path) -> bool:
    try:
        return ask(path, {}) == {"ok": True}
    except OSError:
        return False


def ask(path: Path, message: object) -> object:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(GUARD)
        client.connect(str(path))
        client.sendall((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")
        return json.loads(client.recv(4096) or b"null")


def wait_until(true) -> None:
    give_up = time.monotonic() + GUARD
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A socket that the launcher has named. The engines of these tests start no validator of their own."""
    monkeypatch.setenv(SOCKET_VARIABLE, str(tmp_path / "stage.socket"))
    monkeypatch.setattr("slurm_ft.vendor.datastates._engine.engine.start_where_missing", lambda: None)
    return tmp_path / "stage.socket"


def saved(engine, training, step: int = 2) -> Path:
    engine.save(step, lambda capture: capture.torch_save(training.state(), capture.directory / "state.pt"))
    assert engine.wait(GUARD)
    return engine.root / f"checkpoint-{step}"


def test_what_is_committed_is_read_again_and_recorded(training, make_engine, place):
    with running(place):
        checkpoint = saved(make_engine(), training)
        wait_until((checkpoint / VALIDATION).exists)
    record = json.loads((checkpoint / VALIDATION).read_text())
    assert (record["validated"], record["failed"], record["verdict"]) == (True, False, "valid")
    assert record["bytes"] > (checkpoint / "state.pt").stat().st_size


def test_one_that_fails_is_marked_and_never_resumed_from(training, make_engine, place, capfd):
    with running(place) as process:
        engine = make_engine()
        good = saved(engine, training)
        next(training.model.parameters()).data[0, 0] = float("nan")
        bad = saved(engine, training, 3)
        wait_until(lambda: (good / VALIDATION).exists() and (bad / VALIDATION).exists())
        process.send_signal(signal.SIGTERM)
        log = process.communicate(timeout=GUARD)[1]
    assert "checkpoint-3 FAILED validation and will not be resumed from: state.pt: tensor" in log
    assert "checkpoint-2 validated in" in log
    found = choose(engine.root, "concurrent", Policy(level=None, settle_seconds=0, cache=False, budget_seconds=0))
    assert found.point.path == good
    assert [(entry.candidate.path, entry.finding.verdict) for entry in found.rejected] == [(bad, Verdict.CORRUPT)]
    assert "it failed validation" in found.rejected[0].finding.reason


def test_a_flipped_byte_is_found_by_its_digest(training, make_engine, place):
    checkpoint = saved(make_engine(), training)
    with (checkpoint / "state.pt").open("r+b") as file:
        file.seek(3000)
        byte = file.read(1)
        file.seek(3000)
        file.write(bytes([byte[0] ^ 1]))
    with running(place):
        assert ask(place, {"validate": str(checkpoint)}) == {"ok": True}
        wait_until((checkpoint / VALIDATION).exists)
    assert read_validation(checkpoint).failed


def test_broken_ones_do_not_push_the_last_sound_one_out(training, make_engine, place):
    """With NaN in the weights every later checkpoint is broken: keep_last counts the sound ones."""
    with running(place):
        engine = make_engine(keep_last=1)
        good = saved(engine, training)
        wait_until((good / VALIDATION).exists)
        next(training.model.parameters()).data[0, 0] = float("nan")
        for step in (3, 4, 5):
            wait_until((saved(engine, training, step) / VALIDATION).exists)
    assert [step for step, _ in committed(engine.root)] == [5, 2]


def test_a_record_of_another_save_means_nothing(training, make_engine, place):
    checkpoint = saved(make_engine(), training)
    (checkpoint / VALIDATION).write_text('{"schema": 1, "failed": true, "manifest_sha256": "0"}')
    assert read_validation(checkpoint) is None
    (checkpoint / VALIDATION).write_text("[" * 100_000)
    assert read_validation(checkpoint) is None


def test_a_killed_validator_costs_a_warning_and_a_new_one_takes_its_socket(training, make_engine, place, caplog):
    with running(place) as process:
        process.kill()
        process.wait()
    assert place.exists()
    engine = make_engine()
    saved(engine, training)
    saved(engine, training, 3)
    warnings = [record.message for record in caplog.records if "does not answer" in record.message]
    assert len(warnings) == 1
    assert engine.status.committed == 2
    with running(place):
        wait_until((saved(engine, training, 4) / VALIDATION).exists)


def test_two_jobs_on_one_socket_the_second_is_told(place):
    with running(place), running(place) as second:
        assert second.wait(GUARD) == 3
        assert "another validator answers there" in second.stderr.read()
        assert answers(place)


def test_it_ends_with_the_training_however_that_ends(place):
    """A shell in the place of the training is killed; nothing tells the validator but its parent's end."""
    script = f"{' '.join(command(place))} & echo $!; exec sleep 600"
    environment = {**os.environ, "PYTHONPATH": str(VENDOR)}
    training = subprocess.Popen(["/bin/sh", "-c", script], env=environment, stdout=subprocess.PIPE, text=True)
    pid = int(training.stdout.readline())
    wait_until(lambda: answers(place))
    training.kill()
    training.wait()
    training.stdout.close()
    wait_until(lambda: not alive(pid))
    assert not place.exists()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    "message", [b"", b"no json", b"[1]", b'{"validate": "relative"}', b'{"validate": 7}', b"[" * 70_000, b"\xff\xfe"]
)
def test_odd_messages_do_not_end_it(place, message):
    with running(place) as process:
        answer = ask(place, message)
        assert answer is None or answer["ok"] is False
        assert ask(place, {"validate": "/nonexistent"}) == {"ok": True}
        assert answers(place)
        assert process.poll() is None


# --- on the other nodes of a job -------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The environment of a rank whose node has no such directory, as the launcher's own node has."""
    path = tmp_path / "slurm_ft-4711.0-k3x" / "stage.socket"
    yield {**os.environ, SOCKET_VARIABLE: str(path), "LOCAL_RANK": "0"}
    while companion._started:
        process = companion._started.pop()
        process.terminate()
        process.wait(GUARD)


def test_the_first_rank_of_a_node_without_a_validator_starts_one(elsewhere, capfd):
    path = Path(elsewhere[SOCKET_VARIABLE])
    start_where_missing(elsewhere)
    assert answers(path)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert capfd.readouterr().err.splitlines()[:3] == [
        f"waiting for validator through {path}...",
        "validator is running....",
        "sidecar container is running and ready for training process to run!",
    ]
    start_where_missing(elsewhere)
    assert len(companion._started) == 1


@pytest.mark.parametrize("changed", [{"LOCAL_RANK": "1"}, {SOCKET_VARIABLE: ""}])
def test_other_ranks_and_trainings_without_a_launcher_start_none(elsewhere, changed):
    start_where_missing({**elsewhere, **changed})
    assert not companion._started
    assert not Path(elsewhere[SOCKET_VARIABLE]).parent.exists()


def test_a_directory_of_another_users_is_not_used(elsewhere, capfd):
    if os.getuid() != 0:
        pytest.skip("needs root to give a directory away")
    directory = Path(elsewhere[SOCKET_VARIABLE]).parent
    directory.mkdir()
    os.chown(directory, 65534, 65534)
    start_where_missing({**elsewhere})
    assert not companion._started
    assert f"{directory} belongs to another user: training goes on without a validator" in capfd.readouterr().err


def test_an_engine_starts_it_before_the_first_save(training, make_engine, elsewhere, monkeypatch):
    for name in (SOCKET_VARIABLE, "LOCAL_RANK"):
        monkeypatch.setenv(name, elsewhere[name])
    checkpoint = saved(make_engine(), training)
    wait_until((checkpoint / VALIDATION).exists)
    assert len(companion._started) == 1


def test_another_user_is_not_let_in(place):
    if os.getuid() != 0:
        pytest.skip("needs root to become somebody else")
    with running(place):
        assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0
        place.chmod(0o777)  # even so: the credentials of the caller count
        for folder in (place.parent, *place.parents[1:3]):
            folder.chmod(0o755)
        code = (
            "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
            "s.sendall(b'{}\\n')\nsys.exit(len(s.recv(99)))"
        )
        nobody = pwd.getpwnam("nobody")
        child = subprocess.run(
            ["/usr/bin/python3", "-c", code, str(place)],
            check=False,
            user=nobody.pw_uid,
            group=nobody.pw_gid,
            stderr=subprocess.PIPE,
        )
        assert child.returncode == 0 or b"BrokenPipe" in child.stderr or b"ConnectionReset" in child.stderr
        assert answers(place)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    path = tmp_path / "absent" / "stage.socket"
    environment = {**os.environ, "PYTHONPATH": str(VENDOR)}
    child = subprocess.run(command(path), env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == 1
    assert f"cannot listen on {path}" in child.stderr


def test_it_takes_what_the_training_leaves(place):
    with running(place) as process:
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
        assert len(os.sched_getaffinity(process.pid)) <= 2


def test_it_does_not_load_torch(place, training, make_engine):
    """Its memory is a few buffers, whatever the checkpoint's size."""
    with running(place) as process:
        wait_until((saved(make_engine(), training) / VALIDATION).exists)
        maps = Path(f"/proc/{process.pid}/maps").read_text()
    assert "libtorch" not in maps

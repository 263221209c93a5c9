"""`slurm-ft run`: what the training's own process is, gets and leaves, whatever the launcher did before it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAVING = """
import os, sys, time, zipfile
directory, first, last, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
for step in range(first, last + 1, 10):
    time.sleep(pause)
    with zipfile.ZipFile(f"{directory}/tmp{step}", "w") as archive:
        archive.writestr("archive/data.pkl", b"\\x80\\x02}q\\x00.")
    os.replace(f"{directory}/tmp{step}", f"{directory}/ckpt_{step}.pth")
time.sleep(float(sys.argv[5]) if len(sys.argv) > 5 else 1.5)
"""


def write_valid(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")


class Place:
    """A directory to run in: commands that stand for Slurm's in `bin`, the output directory `out`."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.out = directory, directory / "runs" / "out"
        (directory / "bin").mkdir()
        (directory / "home").mkdir()
        self.out.mkdir(parents=True)

    def environ(self, **more: str) -> dict[str, str]:
        base = {"PATH": f"{self.directory}/bin:/usr/bin:/bin", "HOME": str(self.directory / "home")}
        return {**base, "SLURM_FT_CONFIG": str(self.directory / "none"), **more}

    def command(self, *command: str, options: tuple[str, ...] = (), first: str = "") -> list[str]:
        """`first` is Python that runs before the command line."""
        start = (
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); from slurm_ft.cli.main import main\n"
            f"{first}\nsys.exit(main())"
        )
        return [sys.executable, "-c", start, "run", f"--output-dir={self.out}", *options, "--", *command]

    def run(self, *command: str, options: tuple[str, ...] = (), **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*command, options=options),
            env=self.environ(**more),
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )

    def record(self) -> dict[str, object]:
        content: dict[str, object] = json.loads((self.out.parent / ".ft-state" / "out" / "resume.json").read_text())
        return content


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def printed(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The environment that `env` printed."""
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


@pytest.fixture(autouse=True)
def _no_signal_is_ignored():
    """A test run in the background of a shell, or under nohup, ignores signals, and its children would inherit that."""
    ignored = [one for one in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_IGN]
    for one in ignored:
        signal.signal(one, signal.SIG_DFL)
    yield
    for one in ignored:
        signal.signal(one, signal.SIG_IGN)


class TestProcess:
    @pytest.mark.parametrize("code", [0, 1, 7, 74, 127, 255])
    def test_the_exit_code_is_the_trainings(self, place: Place, code: int) -> None:
        assert place.run("sh", "-c", f"exit {code}").returncode == code

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR1])
    def test_a_death_by_signal_is_one(self, place: Place, number: signal.Signals) -> None:
        assert place.run("sh", "-c", f"kill -{number.value} $$").returncode == -number.value

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
    def test_a_signal_reaches_the_training_once(self, place: Place, number: signal.Signals) -> None:
        text = f"trap 'echo got' {number.value}; echo ready; for i in 1 2 3 4 5 6; do sleep 0.2; done; exit 9"
        with subprocess.Popen(
            place.command("bash", "-c", text), env=place.environ(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(number)
            assert process.stdout.read() == b"got\n"
        assert process.returncode == 9

    def test_the_training_inherits_no_child_and_no_ignored_signal(self, place: Place) -> None:
        write_valid(place.out / "ckpt_20.pth")  # with a process beside it
        text = "import os, signal; print(signal.getsignal(signal.SIGPIPE).name); os.waitpid(-1, os.WNOHANG)"
        done = place.run("python3", "-c", text)
        assert done.stdout == "SIG_IGN\n"  # Python's own; the shell below shows what was inherited
        assert "ChildProcessError" in done.stderr
        assert place.run("sh", "-c", "grep SigIgn /proc/$$/status").stdout.split()[1].endswith("0000")

    def test_a_program_that_does_not_exist_is_named_and_nothing_decided(self, place: Place) -> None:
        done = place.run("no-such-trainer", "--x")
        assert done.returncode == 127
        assert "'no-such-trainer' is no program in PATH" in done.stderr
        assert not (place.out.parent / ".ft-state").exists()

    def test_a_program_that_cannot_be_run_is_named(self, place: Place) -> None:
        script = place.directory / "bin" / "train"
        script.write_text("#!/no/such/interpreter\n")
        script.chmod(0o755)
        done = place.run("train")
        assert done.returncode == 127
        assert f"{script} cannot be run" in done.stderr

    def test_a_missing_command_is_an_error_and_no_hang(self, place: Place) -> None:
        done = place.run()
        assert done.returncode == 1
        assert "there is no command to run" in done.stderr

    def test_words_reach_it_as_they_are(self, place: Place) -> None:
        words = ["a b", "--", "$(x)", "", "--framework", "-h"]
        assert place.run("printf", "<%s>", *words).stdout == "".join(f"<{word}>" for word in words)


class TestEnvironment:
    def test_the_checkpoint_is_handed_over(self, place: Place) -> None:
        write_valid(place.out / "ckpt_9.pth")
        write_valid(place.out / "ckpt_10.pth")
        found = printed(place.run("env", CKPT_LAST_STEP="3"))
        assert (found["CKPT_LAST_STEP"], found["CKPT_LAST_PATH"]) == ("10", str(place.out / "ckpt_10.pth"))
        assert found["CKPT_LAYOUT"] == "pytorch"

    def test_a_start_from_scratch_leaves_them_unset(self, place: Place) -> None:
        done = place.run("env", CKPT_LAST_STEP="3", CKPT_LAST_PATH="/old", CKPT_RESUME_ARGS="")
        assert not [name for name in printed(done) if name.startswith("CKPT_")]
        assert "starting from scratch" in done.stderr

    def test_a_broken_newest_one_cascades_and_is_named(self, place: Place) -> None:
        write_valid(place.out / "ckpt_10.pth")
        (place.out / "ckpt_20.pth").write_bytes(b"PK\x03\x04 torn")
        done = place.run("env")
        assert printed(done)["CKPT_LAST_STEP"] == "10"
        assert "passed over ckpt_20.pth (step 20)" in done.stderr

    @pytest.mark.parametrize(
        ("vendor", "before", "after"),
        [
            ("", None, None),
            ("", "/a", "/a"),
            ("/v", None, "/v"),
            ("/v", "/a:/b", "/v:/a:/b"),
            ("/v", "", "/v"),
            ("/v", "/a::/v:/b", "/v:/a:/b"),
        ],
    )
    def test_the_library_comes_first_and_the_path_gets_no_empty_part(
        self, place: Place, vendor: str, before: str | None, after: str | None
    ) -> None:
        more = {} if before is None else {"PYTHONPATH": before}
        assert printed(place.run("env", CHECKPOINT_VENDOR=vendor, **more)).get("PYTHONPATH") == after

    def test_storage_that_does_not_answer_starts_nothing(self, place: Place) -> None:
        place.out.rmdir()
        place.out.symlink_to(place.directory / "not-mounted")
        done = place.run("touch", "started")
        assert done.returncode == 74
        assert not (place.directory / "started").exists()

    def test_storage_that_hangs_starts_nothing_and_ends_in_time(self, place: Place) -> None:
        hang = "import time; from slurm_ft.cli import resume; resume.choose = lambda *_: time.sleep(60)"
        command = place.command("touch", "started", options=("--timeout=0.3",), first=hang)
        done = subprocess.run(command, env=place.environ(), cwd=place.directory, capture_output=True, check=False)
        assert done.returncode == 74
        assert b"did not answer within 0 s" in done.stderr
        assert not (place.directory / "started").exists()

    def test_no_valid_checkpoint_can_be_made_an_error(self, place: Place) -> None:
        (place.out / "ckpt_20.pth").write_bytes(b"")
        assert place.run("true", options=("--on-no-valid=fail",)).returncode == 65
        assert place.run("true").returncode == 0


class TestContinuation:
    def saving(self, place: Place, first: int, last: int, *options: str, wait: str = "1.5") -> str:
        """Run a training that saves these steps; returns the job's log, which the launcher reads too."""
        log = place.directory / "job.log"
        with log.open("ab") as file:
            command = ("python3", "-c", SAVING, str(place.out), str(first), str(last), "0.3", wait)
            self.code = subprocess.run(
                place.command(*command, options=options), env=place.environ(), stdout=file, stderr=file, check=False
            ).returncode
        return log.read_text()

    def test_a_later_checkpoint_confirms(self, place: Place) -> None:
        write_valid(place.out / "ckpt_20.pth")
        assert "confirmed: training went on from step 20: it saved ckpt_30.pth" in self.saving(place, 30, 30)
        assert place.record()["went_on"] is True

    def test_a_start_from_scratch_beside_broken_checkpoints_is_loud(self, place: Place) -> None:
        (place.out / "ckpt_20.pth").write_bytes(b"PK\x03\x04 torn")
        log = self.saving(place, 30, 30)
        assert "slurm_ft: ALERT: no_valid_checkpoint: none of the 1 checkpoints" in log
        assert place.record()["alert"] == "no_valid_checkpoint"

    def test_a_start_from_scratch_after_a_checkpoint_was_resumed_from_is_loud(self, place: Place) -> None:
        write_valid(place.out / "ckpt_20.pth")
        self.saving(place, 30, 30)
        for path in place.out.iterdir():
            path.unlink()
        assert "ALERT: checkpoints_lost: no checkpoint is left" in self.saving(place, 10, 10)
        assert place.record()["alert"] == "checkpoints_lost"

    def test_a_start_from_scratch_without_any_is_not(self, place: Place) -> None:
        assert "ALERT" not in self.saving(place, 30, 30)

    def test_a_restart_from_zero_is_loud_and_does_not_stop_the_training(self, place: Place) -> None:
        write_valid(place.out / "ckpt_20.pth")
        log = self.saving(place, 10, 30)
        assert "slurm_ft: ALERT: restarted_from_zero: training did not go on from step 20" in log
        assert "confirmed" not in log
        assert self.code == 0
        assert (place.record()["went_on"], place.record()["alert"]) == (False, "restarted_from_zero")

    def test_it_stops_the_training_where_that_is_asked_for(self, place: Place) -> None:
        write_valid(place.out / "ckpt_20.pth")
        log = self.saving(place, 10, 10, "--stop-on-restart-from-zero", wait="60")
        assert "ending the training" in log
        assert self.code == -signal.SIGTERM

    def test_the_log_alone_tells_too(self, place: Place) -> None:
        write_valid(place.out / "ckpt_20.pth")
        with (place.directory / "job.log").open("wb") as log:
            text = "echo '  Continuing training from global step 20'; sleep 1.5"
            subprocess.run(place.command("sh", "-c", text), env=place.environ(), stdout=log, stderr=log, check=False)
        text = (place.directory / "job.log").read_text()
        assert 'the log says "Continuing training from global step 20"' in text

    def test_a_pipe_of_the_training_ends_with_it(self, place: Place) -> None:
        """The process beside it holds the same output: whoever reads that must not wait for more."""
        write_valid(place.out / "ckpt_20.pth")
        began = time.monotonic()
        done = place.run("true")
        assert done.returncode == 0
        assert "not known whether training went on from step 20" in done.stderr
        assert time.monotonic() - began < 60  # it would never end


class TestStaleLock:
    def test_it_goes_before_the_training_starts(self, place: Place) -> None:
        lock = place.directory / "home" / ".cache" / "torch_extensions" / "py311_cpu" / "shm_comm" / "lock"
        lock.parent.mkdir(parents=True)
        lock.write_text("")
        old = time.time() - 7200
        os.utime(lock, (old, old))
        done = place.run("test", "!", "-e", str(lock))
        assert done.returncode == 0
        assert f"removed the stale lock {lock}" in done.stderr


def test_llamafactory_gets_a_copy_of_its_configuration_and_the_users_file_stays(place: Place) -> None:
    specimen = ROOT / "tests" / "fixtures" / "checkpoints" / "llamafactory" / "output"
    shutil.copytree(specimen, place.out, dirs_exist_ok=True)
    (place.out / "checkpoint-10" / "optimizer.pt").write_bytes(b"PK")
    config = place.directory / "train.yaml"
    config.write_text(f"# ours\nresume_from_checkpoint: {place.out}  # its parent\nlr: 1\n")
    program = place.directory / "bin" / "llamafactory-cli"
    program.write_text('#!/bin/sh\ncat "$2"\n')
    program.chmod(0o755)
    done = place.run("llamafactory-cli", "train", "train.yaml")
    assert done.stdout == f'# ours\nresume_from_checkpoint: "{place.out}/checkpoint-9"  # its parent\nlr: 1\n', (
        done.stderr
    )
    assert config.read_text() == f"# ours\nresume_from_checkpoint: {place.out}  # its parent\nlr: 1\n"

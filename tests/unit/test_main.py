from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import slurm_ft
from slurm_ft import log
from slurm_ft.cli import hook, main
from slurm_ft.config import Config
from slurm_ft.errors import ConfigError, SlurmCommandError, SlurmFtError
from slurm_ft.node import epilog

PACKAGE = Path(slurm_ft.__file__).parents[1]


def python(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={"PYTHONPATH": str(PACKAGE), "PATH": "/usr/bin:/bin", **environ},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def fails_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: object) -> int:
        raise error

    command = SimpleNamespace(configure=lambda _: None, run=run)
    monkeypatch.setattr(main, "import_module", lambda _: command)


class TestMain:
    def test_an_unknown_command_lists_the_known_ones(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main.main(["frobnicate"])
        assert caught.value.code == 2
        error = capsys.readouterr().err
        assert "invalid choice: 'frobnicate'" in error
        assert "status" in error

    @pytest.mark.parametrize("given", [[], ["--help"], ["-h"]])
    def test_help_names_every_command(self, given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main.main(given)
        assert caught.value.code == 0
        out = capsys.readouterr().out
        assert all(name in out for name in main.COMMANDS)

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main.main(["--version"])
        assert caught.value.code == 0
        assert capsys.readouterr().out == f"slurm_ft {slurm_ft.__version__}\n"

    def test_a_commands_own_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main.main(["status", "--help"])
        assert caught.value.code == 0
        assert capsys.readouterr().out.startswith("usage: slurm-ft status ")

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (SlurmFtError("the thing failed", "Mend it"), 1),
            (SlurmCommandError("squeue", "failed with 1", "no controller"), 1),
            (ConfigError("f.yaml:1: no"), 78),
        ],
    )
    def test_an_error_of_ours_is_one_line_and_an_exit_code(
        self, error: SlurmFtError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fails_with(error, monkeypatch)
        assert main.main(["status"]) == code
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("", f"slurm-ft: {error}\n")

    def test_an_interrupt_is_an_exit_code(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fails_with(KeyboardInterrupt(), monkeypatch)
        assert main.main(["status"]) == 130

    def test_a_bug_keeps_its_traceback(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fails_with(ZeroDivisionError(), monkeypatch)
        with pytest.raises(ZeroDivisionError):
            main.main(["status"])

    @pytest.mark.parametrize("command", ["--help", "status"])
    def test_a_reader_that_goes_away_is_no_error(self, command: str, tmp_path: Path) -> None:
        """As in `slurm-ft status | head -1`: the output is still in the buffer when the command returns."""
        squeue = tmp_path / "squeue"
        squeue.write_text("#!/bin/sh\n")
        squeue.chmod(0o755)
        (tmp_path / "sinfo").symlink_to(squeue)
        settings = tmp_path / "slurm_ft.yaml"
        settings.write_text(f"slurm_bin: {tmp_path}\n")
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [sys.executable, "-m", "slurm_ft.cli.main", command],
            env={"PYTHONPATH": str(PACKAGE), "SLURM_FT_CONFIG": str(settings)},
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=20,
            check=False,
        )
        os.close(write)
        assert (done.returncode, done.stderr) == (0, b"")

    @pytest.mark.parametrize("unbuffered", ["", "1"])
    @pytest.mark.parametrize("output", [">/dev/full", ">&-"])
    @pytest.mark.parametrize("command", ["--help", "--version", "template list", "template show python"])
    def test_output_that_cannot_be_written_is_one_line(self, command: str, output: str, unbuffered: str) -> None:
        done = subprocess.run(
            ["/bin/sh", "-c", f'exec "$0" -m slurm_ft.cli.main {command} {output}', sys.executable],
            env={"PYTHONPATH": str(PACKAGE), "PYTHONUNBUFFERED": unbuffered},
            stderr=subprocess.PIPE,
            text=True,
            timeout=20,
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr.startswith("slurm-ft: the output cannot be written: ")
        assert done.stderr.count("\n") == 1

    def test_what_is_for_a_closed_stderr_is_not_printed_to_stdout(self) -> None:
        """Of `slurm-ft resume`, stdout is evaluated by a shell."""
        done = subprocess.run(
            ["/bin/sh", "-c", 'exec "$0" -m slurm_ft.cli.main classify /nonexistent 2>&-', sys.executable],
            env={"PYTHONPATH": str(PACKAGE)},
            stdout=subprocess.PIPE,
            timeout=20,
            check=False,
        )
        assert (done.returncode, done.stdout) == (65, b"")

    def test_another_file_that_is_full_is_not_taken_for_the_output(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fails_with(OSError(28, "No space left on device", "/var/lib/x"), monkeypatch)
        with pytest.raises(OSError, match="/var/lib/x"):
            main.main(["status"])


class TestHook:
    ENVIRON = {"SLURM_JOB_ID": "12", "SLURMD_NODENAME": "n1", "SLURM_JOB_GPUS": "0"}  # noqa: RUF012

    @pytest.fixture
    def settings(self, tmp_path: Path) -> Path:
        path = tmp_path / "slurm_ft.yaml"
        path.write_text(f"log_file: {tmp_path}/log\n")
        path.chmod(0o644)
        return path

    @pytest.mark.parametrize("name", list(hook.HOOKS))
    def test_a_start_by_hand_fails_open_and_is_logged(self, name: str, settings: Path, tmp_path: Path) -> None:
        settings.write_text(settings.read_text() + "mode: act\n")
        done = python("-m", "slurm_ft.cli.main", "hook", name, SLURM_FT_CONFIG=str(settings))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert "SLURM_JOB_ID is ''" in (tmp_path / "log").read_text()

    @pytest.mark.parametrize("error", [ZeroDivisionError("boom"), RecursionError("boom"), OSError("boom")])
    def test_a_crash_fails_open_and_is_logged(
        self, error: Exception, settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def crash(*_: object) -> int:
            raise error

        monkeypatch.setattr(epilog, "run", crash)
        monkeypatch.setenv("SLURM_FT_CONFIG", str(settings))
        assert main.main(["hook", "node-epilog"]) == 0
        text = (tmp_path / "log").read_text()
        assert "failed, nothing was done: Traceback" in text
        assert "boom" in text

    @pytest.mark.parametrize("name", list(hook.HOOKS))
    def test_a_broken_configuration_fails_open_and_is_logged_where_the_defaults_say(
        self,
        name: str,
        settings: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        """In this process: the log that the defaults name is the machine's own, and tests keep off it."""
        settings.write_text("mode: [")
        for key, value in {**self.ENVIRON, "SLURM_FT_CONFIG": str(settings)}.items():
            monkeypatch.setenv(key, value)
        used: list[Config] = []
        open_log = log.open_log

        def watched(config: Config, name: str) -> object:
            used.append(config)
            return open_log(Config(log_file=tmp_path / "log"), name)

        monkeypatch.setattr(log, "open_log", watched)
        assert main.main(["hook", name]) == 0
        assert used == [Config()]
        assert "not YAML" in (tmp_path / "log").read_text()
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize("code", [0, 75])
    def test_the_exit_code_of_the_hook_is_that_of_the_command(
        self, code: int, settings: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SLURM_FT_CONFIG", str(settings))
        monkeypatch.setattr(epilog, "run", lambda *_: code)
        assert main.main(["hook", "node-epilog"]) == code

    def test_an_unknown_hook_names_the_valid_ones(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main.main(["hook", "task-prolog"])
        assert caught.value.code == 2
        assert "node-epilog" in capsys.readouterr().err


HEAVY = ("torch", "numpy", "ClusterShell", "filelock", "hypothesis", "asyncio", "http", "urllib.request", "pyslurm")


@pytest.mark.parametrize("module", ["slurm_ft.node.epilog", "slurm_ft.controller.epilog", "slurm_ft.controller.prolog"])
def test_a_hook_imports_nothing_that_it_does_not_need(module: str) -> None:
    code = f"import json, sys, slurm_ft.cli.main, slurm_ft.cli.hook, {module}; print(json.dumps(sorted(sys.modules)))"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert module in loaded
    assert loaded.isdisjoint(HEAVY)
    assert not {name for name in loaded if name.startswith(("slurm_ft.checkpoints", "slurm_ft.lab", "slurm_ft.status"))}


def test_the_command_line_alone_reads_no_yaml() -> None:
    done = python("-c", "import sys, slurm_ft.cli.main; print('yaml' in sys.modules, 'slurm_ft.config' in sys.modules)")
    assert done.stdout == "False False\n"


class TestGivenValues:
    """Of options that several commands have."""

    @pytest.mark.parametrize(
        "words",
        [
            ["resume", "--output-dir", ""],
            ["resume", "--output-dir="],
            ["run", "--output-dir", "", "--", "true"],
            ["checkpoints", "list", ""],
            ["checkpoints", "validate", ""],
            ["checkpoints", "restore", ""],
        ],
    )
    def test_an_empty_directory_is_not_the_current_one(
        self, words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as caught:
            main.main(words)
        assert caught.value.code == 2
        assert "is empty: is the variable set?" in capsys.readouterr().err

    @pytest.mark.parametrize("command", [["resume", "--output-dir", "d"], ["checkpoints", "list", "d"]])
    @pytest.mark.parametrize("option", ["--world-size=-1", "--world-size=0", "--budget=-1", "--budget=nan"])
    def test_what_counts_is_not_negative(
        self, command: list[str], option: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as caught:
            main.main([*command, option])
        assert caught.value.code == 2
        assert "is no number of " in capsys.readouterr().err

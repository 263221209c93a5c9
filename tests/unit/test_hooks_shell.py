"""The executables that slurm.conf names, run as Slurm runs them: without a PATH, with nothing but its variables."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from test_signatures import HOST_LINES

from slurm_ft.classify.host_facts import HOST_FACTS
from slurm_ft.node import attempt_file
from slurm_ft.sensors import nvml_snapshot

ROOT = Path(__file__).parents[2]
JOB = {"SLURM_JOB_ID": "12", "SLURM_JOB_RESTART_COUNT": "0", "SLURM_JOB_NAME": "$(touch TRACE/name)"}
CONTROLLER = {**JOB, "SLURM_JOB_EXIT_CODE2": "0:0", "SLURM_JOB_COMMENT": "[slurm_ft]"}
EPILOG = (ROOT / "epilog/node_epilog").read_text()
NODE = {**JOB, "SLURMD_NODENAME": "n1", "SLURM_JOB_GPUS": "0,1", "SLURM_JOB_EXIT_CODE2": "1:0"}
HOSTILE = ["$(touch TRACE/comment)", "`touch TRACE/comment`", "'; touch TRACE/comment; '", "*", "-n", "\\\\", "a\nb"]


class Stage:
    """A place to run a hook: fakes of slurm-ft and squeue that leave a trace, a run directory, a configuration."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.run_dir = directory / "run"
        self.trace = directory / "trace"
        self.trace.mkdir()
        self.fake("slurm-ft")
        self.fake("squeue", "echo 0 1000000600")  # restarts, and the end time of a job that has ended
        self.config = directory / "slurm_ft.yaml"
        self.config.write_text(f"slurm_bin: {directory}\n")

    def fake(self, name: str, body: str = ":") -> None:
        script = self.directory / name
        script.write_text(f'#!/bin/sh\necho "$*" >>{self.trace}/{name}\n{body}\n')
        script.chmod(0o755)

    def run(self, hook: str, variables: dict[str, str], **more: str) -> subprocess.CompletedProcess[str]:
        variables = {name: value.replace("TRACE", str(self.trace)) for name, value in {**variables, **more}.items()}
        ours = {
            "SLURM_FT_BIN": str(self.directory / "slurm-ft"),
            "SLURM_FT_CONFIG": str(self.config),
            "SLURM_FT_RUN_DIR": str(self.run_dir),
        }
        assignments = [f"{name}={value}" for name, value in {**ours, **variables}.items()]
        return subprocess.run(
            ["/usr/bin/env", "-i", *assignments, str(ROOT / hook)],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            cwd=self.directory,
        )

    @property
    def started(self) -> dict[str, list[str]]:
        """The arguments of every command that was started, by its name."""
        return {path.name: path.read_text().splitlines() for path in self.trace.iterdir()}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def passes_as_clean(*messages: str) -> bool:
    """What the epilog's own awk program says of a log with these messages behind the marker."""
    program = EPILOG.partition("/usr/bin/awk '")[2].partition("'")[0]
    end = "/usr/bin/dd: error reading '/dev/kmsg': Resource temporarily unavailable"
    records = "".join(f"4,2,6,-;{message}\n" for message in messages)
    log = f"4,0,4,-;NVRM: of an earlier job\n12,1,5,-;the marker\n{records}{end}\n"
    done = subprocess.run(["/usr/bin/awk", program], input=log, text=True, env={"marker": "the marker"}, check=False)
    return done.returncode == 0


def kernel_log() -> str:
    """The real log of this machine."""
    return subprocess.run(["/usr/bin/dmesg"], capture_output=True, text=True, errors="replace", check=False).stdout


@pytest.fixture
def marker(stage: Stage) -> str:
    """The marker of a node Prolog that could write it."""
    stage.run("prolog/node_prolog", NODE)
    marker = attempt_file.read(stage.run_dir, "n1", 12).marker
    if marker is None or marker not in kernel_log():
        pytest.skip("only root may write to the kernel log and read it")
    return marker


class TestNodeProlog:
    def test_notes_where_the_attempt_begins(self, stage: Stage) -> None:
        assert stage.run("prolog/node_prolog", NODE).returncode == 0
        start = attempt_file.read(stage.run_dir, "n1", 12)
        assert start.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert start.uptime is not None
        assert abs(start.uptime - float(Path("/proc/uptime").read_text().split()[0])) < 20
        assert (stage.run_dir / "attempts" / "n1.12").stat().st_mode & 0o777 == 0o644

    def test_leaves_its_marker_in_the_kernel_log(self, stage: Stage, marker: str) -> None:
        assert re.fullmatch(r"slurm_ft: start job=12\.0 node=n1 id=[0-9.]+-[0-9]+", marker)
        assert kernel_log().count(marker) == 1

    def test_the_next_attempt_of_the_same_job_replaces_the_note(self, stage: Stage) -> None:
        stage.run("prolog/node_prolog", NODE)
        first = (stage.run_dir / "attempts" / "n1.12").read_text()
        stage.run("prolog/node_prolog", NODE, SLURM_JOB_RESTART_COUNT="1")
        second = (stage.run_dir / "attempts" / "n1.12").read_text()
        assert first != second
        assert second.splitlines()[3:] == ["0,1", "1", ""]

    @pytest.mark.parametrize(
        ("comment", "noted"),
        [
            ("mine [slurm_ft n=1/3 ex=n1,n2 cause=xid79] x", "n1,n2"),
            ("[slurm_ft n=1/3 cause=xid79] ex=n9", ""),
            ("[slurm_ft] ex=n9", ""),
            ("[slurm_ft n=1/3 ex=$(touch TRACE/x)]", ""),
            ("[slurm_ft n=1/3 ex=n1\nn2]", ""),
        ],
    )
    def test_notes_the_exclusions_for_the_tasks(self, stage: Stage, comment: str, noted: str) -> None:
        stage.run("prolog/node_prolog", NODE, SLURM_JOB_COMMENT=comment)
        assert (stage.run_dir / "attempts" / "n1.12").read_text().splitlines()[5] == noted
        assert [one.raw_id for one in attempt_file.running(stage.run_dir, "n1")] == [12]
        assert "x" not in stage.started

    def test_a_job_without_gpus_touches_nothing(self, stage: Stage) -> None:
        for nothing in ({}, {"SLURM_JOB_GPUS": ""}):
            variables = {name: value for name, value in NODE.items() if name != "SLURM_JOB_GPUS"} | nothing
            assert stage.run("prolog/node_prolog", variables).returncode == 0
        assert not stage.run_dir.exists()
        assert stage.started == {}

    @pytest.mark.parametrize("obstacle", ["run", "attempts", "note"])
    def test_a_run_directory_that_cannot_be_made_never_stops_a_job(self, stage: Stage, obstacle: str) -> None:
        if obstacle == "run":
            stage.run_dir.touch()
        elif obstacle == "attempts":
            stage.run_dir.mkdir()
            (stage.run_dir / "attempts").touch()
        else:
            (stage.run_dir / "attempts" / "n1.12").mkdir(parents=True)
        assert stage.run("prolog/node_prolog", NODE).returncode == 0

    @pytest.mark.parametrize("text", HOSTILE)
    def test_text_of_a_user_does_nothing(self, stage: Stage, text: str) -> None:
        done = stage.run("prolog/node_prolog", NODE, SLURM_JOB_NAME=text, SLURM_JOB_COMMENT=text)
        assert done.returncode == 0
        assert stage.started == {}
        assert [path.name for path in (stage.run_dir / "attempts").iterdir()] == ["n1.12"]


class TestSnapshotOfTheStart:
    """The node Prolog starts `slurm-ft hook nvml-snapshot` where there may be an NVML, and does not wait."""

    @pytest.fixture
    def node_with_nvml(self, stage: Stage) -> Stage:
        """A node whose driver listed its GPUs."""
        stage.run_dir.mkdir()
        (stage.run_dir / "gpus").write_text("0 0000:3b:00.0\n")
        return stage

    def wait_for(self, path: Path) -> str:
        deadline = time.monotonic() + 10
        while not (path.exists() and path.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return path.read_text()

    def test_is_started_and_neither_waited_for_nor_killed_with_the_prolog(self, node_with_nvml: Stage) -> None:
        done = node_with_nvml.directory / "done"
        node_with_nvml.fake("slurm-ft", f"sleep 1; ls /proc/self/fd >{done}.new; mv {done}.new {done}")
        variables = {"SLURM_FT_BIN": str(node_with_nvml.directory / "slurm-ft")}
        variables |= {"SLURM_FT_RUN_DIR": str(node_with_nvml.run_dir), **NODE, "SLURM_JOB_NAME": "x"}
        with subprocess.Popen(
            [str(ROOT / "prolog/node_prolog")],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as prolog:
            output, _ = prolog.communicate(timeout=10)  # returns at the end of the output, as slurmd's reading does
            with contextlib.suppress(ProcessLookupError):
                os.killpg(prolog.pid, signal.SIGKILL)  # as newer Slurm does
        assert not done.exists()
        assert (prolog.returncode, output) == (0, b"")
        assert len(self.wait_for(done).split()) <= 4
        assert node_with_nvml.started["slurm-ft"] == ["hook nvml-snapshot"]

    @pytest.mark.parametrize("missing", ["binding", "driver"])
    def test_costs_nothing_where_there_is_no_nvml(self, node_with_nvml: Stage, missing: str) -> None:
        if missing == "driver":
            (node_with_nvml.run_dir / "gpus").write_text("")
        else:
            (node_with_nvml.run_dir / "no_nvml").touch()
        assert node_with_nvml.run("prolog/node_prolog", NODE).returncode == 0
        time.sleep(0.3)
        assert node_with_nvml.started == {}

    def test_a_missing_slurm_ft_never_stops_a_job(self, node_with_nvml: Stage) -> None:
        (node_with_nvml.directory / "slurm-ft").unlink()
        assert node_with_nvml.run("prolog/node_prolog", NODE).returncode == 0

    def test_is_removed_by_the_epilog(self, node_with_nvml: Stage) -> None:
        node_with_nvml.run("prolog/node_prolog", NODE)
        snapshot = nvml_snapshot.path_of(node_with_nvml.run_dir, "n1", 12)
        snapshot.parent.mkdir()
        snapshot.touch()
        node_with_nvml.run("epilog/node_epilog", NODE)
        assert not snapshot.exists()


class TestNodeEpilog:
    def test_a_failed_job_is_judged_and_its_note_removed(self, stage: Stage) -> None:
        stage.run("prolog/node_prolog", NODE)
        stage.fake("slurm-ft", f"cat {stage.run_dir}/attempts/n1.12 >/dev/null || exit 75")
        assert stage.run("epilog/node_epilog", NODE).returncode == 0
        assert stage.started == {"slurm-ft": ["hook node-epilog"]}
        assert list((stage.run_dir / "attempts").iterdir()) == []

    @pytest.mark.parametrize(
        ("status", "code"), [(0, 0), (1, 0), (2, 0), (74, 0), (75, 1), (78, 0), (127, 0), (255, 0)]
    )
    def test_only_a_failed_drain_fails_the_epilog(self, stage: Stage, status: int, code: int) -> None:
        stage.fake("slurm-ft", f"exit {status}")
        assert stage.run("epilog/node_epilog", NODE).returncode == code

    def test_a_judge_killed_or_missing_never_costs_the_node(self, stage: Stage) -> None:
        stage.fake("slurm-ft", "kill -9 $$")
        assert stage.run("epilog/node_epilog", NODE).returncode == 0
        assert stage.run("epilog/node_epilog", NODE, SLURM_FT_BIN="/nonexistent").returncode == 0

    def test_a_job_without_gpus_starts_nothing(self, stage: Stage) -> None:
        assert stage.run("epilog/node_epilog", NODE, SLURM_JOB_GPUS="").returncode == 0
        assert stage.started == {}

    def test_a_good_end_and_a_log_clean_since_the_marker_start_no_python(self, stage: Stage, marker: str) -> None:
        assert stage.run("epilog/node_epilog", NODE, SLURM_JOB_EXIT_CODE2="0:0").returncode == 0
        if not passes_as_clean(*(line.partition("] ")[2] for line in kernel_log().partition(marker)[2].splitlines())):
            pytest.skip("something else wrote to this machine's kernel log")
        assert stage.started == {}
        assert list((stage.run_dir / "attempts").iterdir()) == []

    def test_a_good_end_with_a_line_of_the_driver_is_judged(self, stage: Stage, marker: str) -> None:
        Path("/dev/kmsg").write_text("NVRM: a test of slurm_ft, no fault\n")
        assert stage.run("epilog/node_epilog", NODE, SLURM_JOB_EXIT_CODE2="0:0").returncode == 0
        assert stage.started == {"slurm-ft": ["hook node-epilog"]}

    @pytest.mark.parametrize("message", [text for text, name in HOST_LINES.items() if name and HOST_FACTS[name].drains])
    def test_a_good_end_with_a_fault_of_the_node_is_judged(self, message: str) -> None:
        assert not passes_as_clean(message)

    @pytest.mark.parametrize(
        "message",
        [
            "pcieport 0000:00:02.0: AER: Corrected error received: id=0010",
            "[Hardware Error]: Corrected error, no action required.",
            "{1}[Hardware Error]: event severity: corrected",
            "mlx5_core 0000:5e:00.0 ens1np0: Link up",
            "nvme nvme0: 16/0/0 default/read/poll queues",
            "usb 1-1: reset high-speed USB device number 2 using xhci_hcd",
            "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode",
        ],
    )
    def test_a_good_end_with_what_the_machine_corrected_starts_no_python(self, message: str) -> None:
        assert passes_as_clean(message)

    @pytest.mark.parametrize("code", ["1:0", "0:9", "0:15", "137:0"])
    def test_every_bad_end_is_judged(self, stage: Stage, code: str) -> None:
        stage.run("epilog/node_epilog", NODE, SLURM_JOB_EXIT_CODE2=code)
        assert stage.started == {"slurm-ft": ["hook node-epilog"]}

    @pytest.mark.parametrize("text", HOSTILE)
    def test_text_of_a_user_does_nothing(self, stage: Stage, text: str) -> None:
        assert stage.run("epilog/node_epilog", NODE, SLURM_JOB_NAME=text, SLURM_JOB_COMMENT=text).returncode == 0
        assert stage.started.keys() == {"slurm-ft"}


class TestSlurmctldEpilog:
    @pytest.mark.parametrize(
        "comment", ["", "slurm_ft", "[slurm_ft", "[slurm_ftx]", "[SLURM_FT]", "slurm_ft]", *HOSTILE]
    )
    @pytest.mark.parametrize("code", ["0:0", "1:0"])
    def test_a_job_that_did_not_ask_starts_no_command(self, stage: Stage, comment: str, code: str) -> None:
        done = stage.run("epilog/slurmctld_epilog", CONTROLLER, SLURM_JOB_COMMENT=comment, SLURM_JOB_EXIT_CODE2=code)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert stage.started == {}

    @pytest.mark.parametrize(
        "comment",
        ["[slurm_ft]", "a [slurm_ft limit=1] b", "[slurm_ft]x", "$(touch TRACE/comment)[slurm_ft]", "\n[slurm_ft]"],
    )
    def test_a_job_that_asked_and_failed_is_judged_without_a_look(self, stage: Stage, comment: str) -> None:
        done = stage.run("epilog/slurmctld_epilog", CONTROLLER, SLURM_JOB_COMMENT=comment, SLURM_JOB_EXIT_CODE2="1:0")
        assert done.returncode == 0
        assert stage.started == {"slurm-ft": ["hook slurmctld-epilog"]}

    def test_a_good_end_costs_one_look(self, stage: Stage) -> None:
        assert stage.run("epilog/slurmctld_epilog", CONTROLLER).returncode == 0
        assert stage.started == {"squeue": ["-h -t all -j 12 -O RestartCnt,EndTime"]}

    def test_a_good_first_attempt_costs_nothing_where_a_node_failure_would_say_so(self, stage: Stage) -> None:
        stage.run("epilog/slurmctld_epilog", CONTROLLER, SLURM_JOB_END_TIME="1000000600")  # told from 24.11 on
        assert stage.started == {}

    def test_a_later_attempt_is_looked_at_there_too(self, stage: Stage) -> None:
        """A requeue and a preemption are told the next restart count, with `0:0`."""
        more = {"SLURM_JOB_END_TIME": "1000000600", "SLURM_JOB_RESTART_COUNT": "1"}
        stage.fake("squeue", "echo 1 NONE")
        stage.run("epilog/slurmctld_epilog", CONTROLLER, **more)
        assert stage.started.keys() == {"squeue", "slurm-ft"}

    def test_the_end_time_is_asked_for_in_seconds(self, stage: Stage) -> None:
        stage.fake("squeue", '[ "$SLURM_TIME_FORMAT" = %s ] && echo 0 1000000600')
        stage.run("epilog/slurmctld_epilog", CONTROLLER)
        assert stage.started.keys() == {"squeue"}

    @pytest.mark.parametrize(
        "answer",
        [
            "echo 1 1000000600",
            "echo 0 NONE",
            "echo 0 $(($(date +%s) + 60))",  # the shortest time limit from now on
            "echo 0",
            "echo",
            ":",
            "exit 1",
            "echo 0 1000000600; exit 1",
            "echo $(touch x)",
            "kill $$",
        ],
    )
    def test_a_good_end_is_judged_when_slurm_requeued_it_or_does_not_say(self, stage: Stage, answer: str) -> None:
        stage.fake("squeue", answer)
        assert stage.run("epilog/slurmctld_epilog", CONTROLLER).returncode == 0
        assert stage.started["slurm-ft"] == ["hook slurmctld-epilog"]

    def test_a_squeue_that_is_missing_is_no_answer(self, stage: Stage) -> None:
        (stage.directory / "squeue").unlink()
        stage.run("epilog/slurmctld_epilog", CONTROLLER)
        assert stage.started == {"slurm-ft": ["hook slurmctld-epilog"]}

    def test_an_array_task_is_addressed_as_one(self, stage: Stage) -> None:
        stage.run("epilog/slurmctld_epilog", CONTROLLER, SLURM_ARRAY_JOB_ID="10", SLURM_ARRAY_TASK_ID="3")
        assert stage.started == {"squeue": ["-h -t all -j 10_3 -O RestartCnt,EndTime"]}

    @pytest.mark.parametrize("mode", [0o664, 0o646])
    def test_a_configuration_that_others_can_write_starts_no_program(self, stage: Stage, mode: int) -> None:
        stage.config.chmod(mode)
        stage.run("epilog/slurmctld_epilog", CONTROLLER)
        assert stage.started == {"slurm-ft": ["hook slurmctld-epilog"]}  # which refuses it, and says so

    @pytest.mark.skipif("os.geteuid() != 0", reason="only root may give files away")
    def test_a_configuration_of_somebody_else_starts_no_program(self, stage: Stage) -> None:
        os.chown(stage.config, 65534, 0)
        stage.run("epilog/slurmctld_epilog", CONTROLLER)
        assert stage.started == {"slurm-ft": ["hook slurmctld-epilog"]}

    @pytest.mark.parametrize("opt_in", ["requeue", "all"])
    def test_where_all_jobs_fail_over_none_needs_a_tag(self, stage: Stage, opt_in: str) -> None:
        stage.config.write_text(f"slurm_bin: {stage.directory}\nopt_in: {opt_in}")
        stage.run("epilog/slurmctld_epilog", CONTROLLER, SLURM_JOB_COMMENT="", SLURM_JOB_EXIT_CODE2="1:0")
        assert stage.started == {"slurm-ft": ["hook slurmctld-epilog"]}

    @pytest.mark.parametrize("status", [1, 75, 127])
    def test_an_error_of_ours_never_fails_the_hook(self, stage: Stage, status: int) -> None:
        stage.fake("slurm-ft", f"exit {status}")
        assert stage.run("epilog/slurmctld_epilog", CONTROLLER, SLURM_JOB_EXIT_CODE2="1:0").returncode == 0

    def test_a_missing_command_never_fails_the_hook(self, stage: Stage) -> None:
        done = stage.run("epilog/slurmctld_epilog", CONTROLLER, SLURM_JOB_EXIT_CODE2="1:0", SLURM_FT_BIN="/nonexistent")
        assert done.returncode == 0

    def test_a_missing_configuration_means_the_defaults(self, stage: Stage) -> None:
        stage.config.unlink()
        stage.run("epilog/slurmctld_epilog", CONTROLLER, SLURM_JOB_EXIT_CODE2="1:0")
        assert stage.started == {"slurm-ft": ["hook slurmctld-epilog"]}


class TestSlurmctldProlog:
    @pytest.mark.parametrize("count", ["", "0", "x", "-1"])
    def test_a_first_start_needs_nothing(self, stage: Stage, count: str) -> None:
        assert stage.run("prolog/slurmctld_prolog", CONTROLLER, SLURM_JOB_RESTART_COUNT=count).returncode == 0
        assert stage.started == {}

    @pytest.mark.parametrize("comment", ["", "[slurm_ft", *HOSTILE])
    def test_a_job_that_did_not_ask_starts_nothing(self, stage: Stage, comment: str) -> None:
        more = {"SLURM_JOB_RESTART_COUNT": "1", "SLURM_JOB_COMMENT": comment}
        assert stage.run("prolog/slurmctld_prolog", CONTROLLER, **more).returncode == 0
        assert stage.started == {}

    def test_a_restart_is_checked(self, stage: Stage) -> None:
        assert stage.run("prolog/slurmctld_prolog", CONTROLLER, SLURM_JOB_RESTART_COUNT="1").returncode == 0
        assert stage.started == {"slurm-ft": ["hook slurmctld-prolog"]}

    @pytest.mark.parametrize("body", ["exit 1", "exit 75", "kill -9 $$"])
    def test_an_error_of_ours_never_holds_a_job(self, stage: Stage, body: str) -> None:
        stage.fake("slurm-ft", body)
        assert stage.run("prolog/slurmctld_prolog", CONTROLLER, SLURM_JOB_RESTART_COUNT="1").returncode == 0


class TestTaskProlog:
    def exports(self, stage: Stage, **variables: str) -> dict[str, str]:
        """What the task's environment gets, read as Slurm reads it: line by line."""
        done = stage.run("prolog/task_prolog", {"SLURM_JOB_ID": "12", "SLURMD_NODENAME": "n1"}, **variables)
        assert (done.returncode, done.stderr) == (0, "")
        lines = [line.removeprefix("export ").partition("=") for line in done.stdout.splitlines()]
        return {name: value for name, _, value in lines}

    def test_the_attempt_and_its_exclusions_enter_the_task(self, stage: Stage) -> None:
        stage.run("prolog/node_prolog", NODE, SLURM_JOB_COMMENT="[slurm_ft n=1/3 ex=n1,n2]")
        assert self.exports(stage, SLURM_RESTART_COUNT="1", CHECKPOINT_VENDOR="/v") == {
            "CHECKPOINT_VENDOR": "/v",
            "SLURM_FT_ATTEMPT": "2",
            "SLURM_FT_EXCLUDED": "n1,n2",
        }

    @pytest.mark.parametrize(
        ("comment", "variables", "asked"),
        [
            ("[slurm_ft n=1/3 ex=n1]", {}, True),
            ("[slurm_ft n=1/3 ex=n1]", {"SLURM_STEP_ID": "-5"}, True),
            ("[slurm_ft n=1/3 ex=n1]", {"SLURM_STEP_ID": "0"}, False),
            ("[slurm_ft n=1/3 ex=n1]", {"SLURM_RESTART_COUNT": "0"}, False),
            ("[slurm_ft]", {}, False),
            ("mine", {}, False),
        ],
        ids=["batch script", "batch script on 26.05", "task of a step", "first start", "no failover", "did not ask"],
    )
    def test_only_the_batch_script_of_a_job_that_failed_over_is_told_why(
        self, stage: Stage, comment: str, variables: dict[str, str], asked: bool
    ) -> None:
        stage.run("prolog/node_prolog", NODE, SLURM_JOB_COMMENT=comment)
        stage.fake("slurm-ft", "echo 'print why'; exit 1")
        done = stage.run(
            "prolog/task_prolog",
            {"SLURM_JOB_ID": "12", "SLURMD_NODENAME": "n1"},
            **{"SLURM_RESTART_COUNT": "1", **variables},
        )
        assert done.returncode == 0
        assert done.stdout.endswith("print why\n") is asked
        assert stage.started.get("slurm-ft") == (["hook restart-line"] if asked else None)

    def test_a_training_is_told_where_to_leave_its_counts_if_the_watcher_wants_them(self, stage: Stage) -> None:
        assert "SLURM_FT_COUNTERS" not in self.exports(stage)
        (stage.run_dir / "checkpoints").mkdir(parents=True)
        assert self.exports(stage)["SLURM_FT_COUNTERS"] == str(stage.run_dir / "checkpoints")

    def test_the_sites_library_is_named_and_the_users_own_stays(self, stage: Stage) -> None:
        assert self.exports(stage, SLURM_FT_VENDOR="/site dir")["CHECKPOINT_VENDOR"] == "/site dir"
        assert self.exports(stage, SLURM_FT_VENDOR="/s", CHECKPOINT_VENDOR="/u")["CHECKPOINT_VENDOR"] == "/u"

    def test_the_library_beside_an_installation_is_found(self, stage: Stage) -> None:
        hook = stage.directory / "share" / "slurm_ft" / "prolog" / "task_prolog"
        hook.parent.mkdir(parents=True)
        hook.write_bytes((ROOT / "prolog" / "task_prolog").read_bytes())
        hook.chmod(0o755)
        vendor = stage.directory / "lib" / "python3.11" / "site-packages" / "slurm_ft" / "vendor"
        (vendor / "datastates").mkdir(parents=True)
        done = subprocess.run([hook], env={}, capture_output=True, text=True, check=True)
        assert f"export CHECKPOINT_VENDOR={vendor}\n" in done.stdout

    @pytest.mark.parametrize("variables", [{}, {"SLURM_RESTART_COUNT": "x; rm"}, {"SLURM_FT_VENDOR": "/a\nexport B=1"}])
    def test_nothing_stops_a_task_and_nothing_else_gets_in(self, stage: Stage, variables: dict[str, str]) -> None:
        found = self.exports(stage, **variables)
        assert set(found) <= {"SLURM_FT_ATTEMPT", "SLURM_FT_EXCLUDED", "CHECKPOINT_VENDOR"}
        assert found["SLURM_FT_EXCLUDED"] == ""
        assert "\n" not in found.get("CHECKPOINT_VENDOR", "")


@pytest.mark.parametrize("hook", ["epilog/slurmctld_epilog", "prolog/slurmctld_prolog"])
def test_only_the_leader_of_a_het_job_is_decided_on(stage: Stage, hook: str) -> None:
    failed = {**CONTROLLER, "SLURM_JOB_EXIT_CODE2": "1:0", "SLURM_JOB_RESTART_COUNT": "1", "SLURM_HET_JOB_ID": "12"}
    stage.run(hook, failed, SLURM_JOB_ID="13", SLURM_HET_JOB_OFFSET="1")
    assert not (stage.trace / "slurm-ft").exists()
    stage.run(hook, failed, SLURM_HET_JOB_OFFSET="0")
    assert (stage.trace / "slurm-ft").exists()

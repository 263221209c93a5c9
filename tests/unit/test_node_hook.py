"""The Python part of the node Epilog: from the files of the node to what it asks of Slurm."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node
from nvml_stub import FIRST, NvmlStub

from slurm_ft.config import Config, Mode
from slurm_ft.errors import HookEnvironmentError
from slurm_ft.failover import node_record
from slurm_ft.model import Event, EventKind, JobKey
from slurm_ft.node import attempt_file, epilog, event_file, nvml_snapshot_hook
from slurm_ft.node.attempt_file import AttemptStart
from slurm_ft.node.event_file import RecordedEvent
from slurm_ft.node.observe import observe
from slurm_ft.sensors import nvml, nvml_snapshot
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
MARKER = "slurm_ft: start job=12.0 node=n1 id=90.00-7"
START = f"12,99,90000000,-;{MARKER}"
OFF_BUS = "3,100,100000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
PROGRAM = "3,100,100000000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=python, MMU Fault"
OTHER_GPU = OFF_BUS.replace("3b", "5e")


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = FakeSlurm(node_records={"n1": node("n1", "mixed", "", "")})
    monkeypatch.setattr(CommandLine, "of", lambda _: fake)
    return fake


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        mode=Mode.ACT,
        kernel_log=tmp_path / "kmsg",
        gpu_inventory={"n1": ("0000:3b:00.0", "0000:5e:00.0")},
        log_file=tmp_path / "log",
        nvml_timeout=10.0,
    )


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """What slurmd gives its Epilog after a job that ended 1:0 on the first GPU of n1."""
    attempts = tmp_path / "attempts"
    attempts.mkdir()
    (attempts / "n1.12").write_text(f"{MARKER}\n{BOOT}\n90.00\n")
    return {
        "SLURM_FT_RUN_DIR": str(tmp_path),
        "SLURMD_NODENAME": "n1",
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_GPUS": "0",
        "SLURM_JOB_EXIT_CODE2": "1:0",
        "SLURM_JOB_RESTART_COUNT": "0",
    }


def kernel_log(config: Config, *records: str) -> None:
    config.kernel_log.write_text("".join(f"{record}\n" for record in records))


def test_a_hardware_fault_drains_the_node_with_its_verdict(
    slurm: FakeSlurm, config: Config, environ: dict[str, str]
) -> None:
    kernel_log(config, START, OFF_BUS)
    assert epilog.run(environ, config) == 0
    record = slurm.node_records["n1"]
    (verdict,) = node_record.read(record.reason, "n1")
    assert (record.draining, record.comment) == (True, "")
    assert (verdict.raw_id, verdict.attempt, verdict.cause, verdict.pci) == (12, 0, "xid79", "0000:3b:00")
    assert "fallen off the bus" in verdict.text


@pytest.mark.parametrize(
    "records",
    [
        (START,),
        (START, PROGRAM),
        (START, OTHER_GPU),
        (OFF_BUS, START.replace("90000000", "110000000")),
    ],
    ids=["nothing", "the program", "a GPU of another job", "an earlier job"],
)
def test_no_fault_of_this_job_leaves_the_node_alone(
    slurm: FakeSlurm, config: Config, environ: dict[str, str], records: tuple[str, ...]
) -> None:
    kernel_log(config, *records)
    assert epilog.run(environ, config) == 0
    assert slurm.calls == []


def test_a_fault_after_a_good_end_still_drains(slurm: FakeSlurm, config: Config, environ: dict[str, str]) -> None:
    kernel_log(config, START, OFF_BUS)
    epilog.run({**environ, "SLURM_JOB_EXIT_CODE2": "0:0"}, config)
    assert slurm.node_records["n1"].draining


@pytest.mark.parametrize("log", [None, "", "no record\n"], ids=["missing", "empty", "garbage"])
def test_a_log_that_cannot_be_read_is_unknown_and_drains_nothing(
    slurm: FakeSlurm, config: Config, environ: dict[str, str], log: str | None
) -> None:
    if log is not None:
        config.kernel_log.write_text(log)
    assert epilog.run(environ, config) == 0
    assert slurm.calls == []
    assert "kernel_log_unreadable" in (config.log_file or Path()).read_text()


def test_gpus_that_cannot_be_named_are_unknown(slurm: FakeSlurm, config: Config, environ: dict[str, str]) -> None:
    kernel_log(config, START, OFF_BUS)
    assert epilog.run({**environ, "SLURM_JOB_GPUS": "7"}, config) == 0
    assert slurm.calls == []


def test_a_reboot_during_the_attempt_is_unknown(slurm: FakeSlurm, config: Config, environ: dict[str, str]) -> None:
    kernel_log(config, START, OFF_BUS)
    (Path(environ["SLURM_FT_RUN_DIR"]) / "attempts" / "n1.12").write_text(f"{MARKER}\nanother-boot\n90.00\n")
    assert epilog.run(environ, config) == 0
    assert slurm.calls == []


def test_without_a_prolog_nothing_is_known(slurm: FakeSlurm, config: Config, environ: dict[str, str]) -> None:
    kernel_log(config, OFF_BUS)
    (Path(environ["SLURM_FT_RUN_DIR"]) / "attempts" / "n1.12").unlink()
    assert epilog.run(environ, config) == 0
    assert slurm.calls == []


def test_observe_notes_the_verdict_and_drains_nothing(
    slurm: FakeSlurm, config: Config, environ: dict[str, str]
) -> None:
    kernel_log(config, START, OFF_BUS)
    assert epilog.run(environ, replace(config, mode=Mode.OBSERVE)) == 0
    record = slurm.node_records["n1"]
    assert (record.draining, record.reason) == (False, "")
    assert len(node_record.read(record.comment, "n1")) == 1


def test_a_refused_drain_fails_the_epilog_so_that_slurmd_drains(
    slurm: FakeSlurm, config: Config, environ: dict[str, str]
) -> None:
    kernel_log(config, START, OFF_BUS)
    slurm.refused.add("drain_node")
    assert epilog.run(environ, config) == 75
    assert "could not be reported" in (config.log_file or Path()).read_text()


@pytest.mark.parametrize("refused", ["nodes", "set_node_comment"])
def test_a_note_that_cannot_be_left_costs_no_node(
    slurm: FakeSlurm, config: Config, environ: dict[str, str], refused: str
) -> None:
    kernel_log(config, START, OFF_BUS)
    slurm.refused.add(refused)
    assert epilog.run(environ, replace(config, mode=Mode.OBSERVE)) == 0


def test_a_start_by_hand_says_what_is_missing(config: Config) -> None:
    with pytest.raises(HookEnvironmentError, match="SLURM_JOB_ID"):
        epilog.run({}, config)
    with pytest.raises(HookEnvironmentError, match="SLURMD_NODENAME"):
        epilog.run({"SLURM_JOB_ID": "12"}, config)


def test_hostile_text_in_the_log_stays_one_line_of_printable_ascii(
    slurm: FakeSlurm, config: Config, environ: dict[str, str]
) -> None:
    config.kernel_log.write_bytes(f"{START}\n{OFF_BUS}".encode() + b" || \x1b[2J\xff" + "é".encode() + b"x" * 900)
    epilog.run(environ, config)
    reason = slurm.node_records["n1"].reason
    assert reason.isascii()
    assert reason.isprintable()
    assert len(node_record.read(reason, "n1")) == 1


def record(config: Config, boot: str, attempt: str) -> None:
    event = Event(EventKind.XID, 79, "0000:3b:00", "NVRM: Xid (PCI:0000:3b:00): 79, off the bus", 100.0)
    event_file.append(
        event_file.path_of(config.state_dir, "n1"), [RecordedEvent(boot, 7, time.time() - 60, event, (attempt,))]
    )


class TestWhatTheWatcherRecorded:
    @pytest.fixture
    def config(self, config: Config, tmp_path: Path) -> Config:
        return replace(config, state_dir=tmp_path / "state")

    def test_convicts_where_the_kernel_log_has_lost_its_beginning(
        self, slurm: FakeSlurm, config: Config, environ: dict[str, str]
    ) -> None:
        kernel_log(config, "6,900,200000000,-;usb 1-1: new device")
        record(config, BOOT, "12.0")
        epilog.run(environ, config)
        (verdict,) = node_record.read(slurm.node_records["n1"].reason, "n1")
        assert (verdict.cause, verdict.pci) == ("xid79", "0000:3b:00")

    def test_convicts_after_a_reboot_that_emptied_the_run_directory(
        self, slurm: FakeSlurm, config: Config, environ: dict[str, str]
    ) -> None:
        kernel_log(config, "6,1,1000000,-;Linux version 6.1")
        (Path(environ["SLURM_FT_RUN_DIR"]) / "attempts" / "n1.12").unlink()
        record(config, "the-boot-before", "12.0")
        epilog.run(environ, config)
        assert slurm.node_records["n1"].draining

    @pytest.mark.parametrize("attempt", ["12.1", "1.0", "112.0"])
    def test_of_another_attempt_convicts_nobody(
        self, slurm: FakeSlurm, config: Config, environ: dict[str, str], attempt: str
    ) -> None:
        kernel_log(config, "6,900,200000000,-;usb 1-1: new device")
        record(config, BOOT, attempt)
        epilog.run(environ, config)
        assert slurm.calls == []

    def test_is_not_asked_where_the_kernel_log_is_whole(
        self, slurm: FakeSlurm, config: Config, environ: dict[str, str]
    ) -> None:
        kernel_log(config, START)
        record(config, BOOT, "12.0")
        environ["SLURM_JOB_EXIT_CODE2"] = "0:0"  # of a failed job its output and NVML are asked as well
        assert [one.sensor for one in observe(environ, config, JobKey(12, "12", 0), "n1")] == ["kernel_log"]


class TestOutputOfAnArrayTask:
    """No release tells its node hooks that a job is a task of an array."""

    @pytest.fixture(autouse=True)
    def failed(self, config: Config, environ: dict[str, str], tmp_path: Path) -> None:
        kernel_log(config, START)
        own = {"SLURM_JOB_UID": str(os.geteuid()), "SLURM_JOB_GID": str(os.getegid())}
        environ.update(own, SLURM_JOB_WORK_DIR=str(tmp_path))

    @pytest.mark.parametrize(
        ("pattern", "file"), [("", "slurm-10_23.out"), ("%A.%a", "10.23")], ids=["default", "pattern"]
    )
    def test_is_found_by_asking_slurm(
        self, slurm: FakeSlurm, config: Config, environ: dict[str, str], job_record: JobRecord, pattern: str, file: str
    ) -> None:
        slurm.job_records["12"] = replace(job_record, raw_id=12, address="10_23")
        (Path(environ["SLURM_JOB_WORK_DIR"]) / file).write_text("torch.OutOfMemoryError: CUDA out of memory. Tried\n")
        environ["SLURM_JOB_STDOUT"] = pattern
        evidence = observe(environ, config, JobKey(12, "12", 0), "n1")
        assert [event.name for one in evidence for event in one.events] == ["cuda_out_of_memory"]

    @pytest.mark.parametrize(
        ("pattern", "file"), [("", "slurm-12.out"), ("%j.out", "elsewhere")], ids=["the file is there", "no number"]
    )
    def test_slurm_is_not_asked_where_it_would_say_nothing_new(
        self, slurm: FakeSlurm, config: Config, environ: dict[str, str], pattern: str, file: str
    ) -> None:
        (Path(environ["SLURM_JOB_WORK_DIR"]) / file).write_text("nothing\n")
        environ["SLURM_JOB_STDOUT"] = pattern
        observe(environ, config, JobKey(12, "12", 0), "n1")
        assert slurm.calls == []

    def test_a_controller_that_does_not_answer_costs_the_output_alone(
        self, slurm: FakeSlurm, config: Config, environ: dict[str, str]
    ) -> None:
        slurm.refused.add("job")
        evidence = observe(environ, config, JobKey(12, "12", 0), "n1")
        assert "No such file" in evidence[1].detail
        assert slurm.calls == [("job", "12")]


class TestAttemptFile:
    def test_lists_the_attempts_of_this_node_that_run(self, environ: dict[str, str], tmp_path: Path) -> None:
        for name, content in {
            "n1.13": f"{MARKER}\n{BOOT}\n91.5\n0,2-3\n4\n",
            "n10.14": f"{MARKER}\n{BOOT}\n91.5\n0\n0\n",
            "n1.x": "",
            "n1.15": f"{MARKER}\n{BOOT}\n91.5\n0\nx\n",
        }.items():
            (tmp_path / "attempts" / name).write_text(content)
        (found,) = attempt_file.running(tmp_path, "n1")  # n1.12 was written by a Prolog that did not note its GPUs
        assert (found.raw_id, found.number, found.gpus, found.name) == (13, 4, "0,2-3", "13.4")
        assert found.start == attempt_file.read(tmp_path, "n1", 13) == AttemptStart(MARKER, BOOT, 91.5)
        assert attempt_file.running(tmp_path / "missing", "n1") == ()

    def test_reads_what_the_prolog_wrote(self, environ: dict[str, str]) -> None:
        start = attempt_file.read(attempt_file.run_dir(environ), "n1", 12)
        assert start == AttemptStart(MARKER, BOOT, 90.0)

    def test_an_empty_marker_is_none(self, environ: dict[str, str], tmp_path: Path) -> None:
        (tmp_path / "attempts" / "n1.12").write_text(f"\n{BOOT}\n90.00\n")
        assert attempt_file.read(tmp_path, "n1", 12) == AttemptStart(None, BOOT, 90.0)

    @pytest.mark.parametrize("content", [b"", b"\n", b"a\nb\n", b"a\nb\nc\n", b"\xff\xfe\n\n1\n", b"\0" * 99])
    def test_a_damaged_note_is_none(self, environ: dict[str, str], tmp_path: Path, content: bytes) -> None:
        (tmp_path / "attempts" / "n1.12").write_bytes(content)
        assert attempt_file.read(tmp_path, "n1", 12) == AttemptStart()

    def test_a_missing_note_is_none(self, tmp_path: Path) -> None:
        assert attempt_file.read(tmp_path, "n1", 12) == AttemptStart()
        (tmp_path / "attempts" / "n1.12").mkdir(parents=True)
        assert attempt_file.read(tmp_path, "n1", 12) == AttemptStart()

    @pytest.mark.parametrize("environ", [{}, {"SLURM_FT_RUN_DIR": ""}])
    def test_the_default_is_the_one_of_the_prolog(self, environ: dict[str, str]) -> None:
        directory = attempt_file.run_dir(environ)
        assert f":-{directory}}}" in (Path(__file__).parents[2] / "prolog" / "node_prolog").read_text()


def test_observation_asks_nothing_of_slurm(slurm: FakeSlurm, config: Config, environ: dict[str, str]) -> None:
    kernel_log(config, START, OFF_BUS)
    evidence, _output = observe(environ, config, JobKey(12, "12", 0), "n1")
    assert [event.code for event in evidence.events] == [79]
    assert slurm.calls == []


class TestNvml:
    """A clean kernel log, and what NVML adds."""

    @pytest.fixture(autouse=True)
    def _clean_log(self, config: Config) -> None:
        kernel_log(config, START)

    def test_a_lost_gpu_drains_although_the_kernel_log_is_clean(
        self, slurm: FakeSlurm, config: Config, environ: dict[str, str], nvml_stub: NvmlStub
    ) -> None:
        nvml_stub.answers("handle 0 15")
        assert epilog.run(environ, config) == 0
        record = slurm.node_records["n1"]
        (verdict,) = node_record.read(record.reason, "n1")
        assert record.draining
        assert (verdict.cause, verdict.pci) == ("gpu_lost", FIRST)
        assert "GPU is lost" in verdict.text

    def test_the_snapshot_of_the_start_dates_what_lasts(
        self, slurm: FakeSlurm, config: Config, environ: dict[str, str], nvml_stub: NvmlStub, tmp_path: Path
    ) -> None:
        nvml_stub.answers("remapped_rows 0 0 0 0 0 1")
        assert nvml_snapshot_hook.run(environ, config) == 0
        nvml_stub.answers("remapped_rows 0 0 0 0 0 1", "ecc_volatile 0 0 1")
        *_, evidence = observe(environ, config, JobKey(12, "12", 0), "n1")
        assert [event.name for event in evidence.events] == ["row_remap_failure_before", "ecc_uncorrected_now"]
        *_, evidence = observe(environ, config, JobKey(12, "12", 1), "n1")
        assert [event.name for event in evidence.events] == ["row_remap_failure_undated"]

    @pytest.mark.parametrize(
        ("record", "exit_code"),
        [(OFF_BUS, "1:0"), (START, "0:0")],
        ids=["the kernel log has decided", "the job ended well"],
    )
    def test_is_not_asked(
        self,
        slurm: FakeSlurm,
        config: Config,
        environ: dict[str, str],
        monkeypatch: pytest.MonkeyPatch,
        record: str,
        exit_code: str,
    ) -> None:
        monkeypatch.setattr(nvml, "read_gpu_state", None)
        kernel_log(config, START, record)
        environ["SLURM_JOB_EXIT_CODE2"] = exit_code
        evidence = observe(environ, config, JobKey(12, "12", 0), "n1")
        assert "nvml" not in [one.sensor for one in evidence]

    def test_can_be_switched_off(
        self, slurm: FakeSlurm, config: Config, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(nvml, "take_reading", None)
        config = replace(config, nvml=False)
        assert nvml_snapshot_hook.run(environ, config) == 0
        evidence = observe(environ, config, JobKey(12, "12", 0), "n1")
        assert "nvml" not in [one.sensor for one in evidence]

    def test_a_recovery_action_after_an_ambiguous_code_drains_and_convicts_nobody(
        self, slurm: FakeSlurm, config: Config, environ: dict[str, str], nvml_stub: NvmlStub
    ) -> None:
        nvml_snapshot_hook.run(environ, config)
        nvml_stub.answers("field_230 0 0 1 1")
        kernel_log(config, START, PROGRAM.replace("): 31", "): 109"))
        assert epilog.run(environ, config) == 0
        record = slurm.node_records["n1"]
        assert record.draining
        assert node_record.read(record.reason, "n1")[0].domain.value == "unknown"

    @pytest.mark.parametrize("why", ["off", "not installed"])
    def test_its_absence_is_noted_for_the_prologs_to_come_until_a_failed_job_finds_it(
        self, config: Config, environ: dict[str, str], nvml_stub: NvmlStub, tmp_path: Path, why: str
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nvml, "BINDING", "no_such_module_at_all" if why != "off" else nvml.BINDING)
            assert nvml_snapshot_hook.run(environ, replace(config, nvml=why != "off")) == 0
        assert (tmp_path / "no_nvml").exists()
        observe(environ, config, JobKey(12, "12", 0), "n1")
        assert not (tmp_path / "no_nvml").exists()

    def test_a_snapshot_that_comes_after_the_end_is_not_left_behind(
        self, config: Config, environ: dict[str, str], nvml_stub: NvmlStub, tmp_path: Path
    ) -> None:
        (tmp_path / "attempts" / "n1.12").unlink()
        assert nvml_snapshot_hook.run(environ, config) == 0
        assert not nvml_snapshot.path_of(tmp_path, "n1", 12).exists()

    def test_gpus_that_are_not_known_make_no_snapshot(
        self, config: Config, environ: dict[str, str], nvml_stub: NvmlStub, tmp_path: Path
    ) -> None:
        for gpus in ("", "7"):
            assert nvml_snapshot_hook.run({**environ, "SLURM_JOB_GPUS": gpus}, config) == 0
        assert not nvml_snapshot.path_of(tmp_path, "n1", 12).parent.exists()

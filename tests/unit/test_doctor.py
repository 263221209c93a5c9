"""What the doctor says of settings, faults, files and channels. On a real cluster: tests/slurm/test_doctor.py."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
import yaml
from fake_slurm import node
from nvml_stub import FIRST, SECOND, NvmlStub

from slurm_ft import config
from slurm_ft.classify.fact import Blame
from slurm_ft.classify.overrides import Override
from slurm_ft.cli.main import main
from slurm_ft.config import Config, Gate, Mode
from slurm_ft.doctor import canary, channels, hooks, records, sensors
from slurm_ft.doctor.canary import Wishes, refuse
from slurm_ft.doctor.cluster import Cluster, Machine, own_machine, roles_of
from slurm_ft.doctor.finding import Finding, Level
from slurm_ft.doctor.rehearsal import Stagehand, rehearse
from slurm_ft.doctor.slurm_settings import judge_settings
from slurm_ft.errors import SlurmFtError
from slurm_ft.install.change import Role
from slurm_ft.model import EventKind, Evidence, NodeAction
from slurm_ft.sensors import dcgm
from slurm_ft.slurm.cli import Host, _gpus
from slurm_ft.slurm.protocol import JobRecord

GOOD = {
    "SLURM_VERSION": "22.05.8",
    "JobRequeue": "1",
    "PrologFlags": "Alloc",
    "JobFileAppend": "1",
    "PrologEpilogTimeout": "65534",
    "AccountingStorageType": "accounting_storage/none",
}


def levels(findings: tuple[Finding, ...]) -> list[Level]:
    return [finding.level for finding in findings]


def test_a_cluster_that_is_set_up_well_has_no_complaint() -> None:
    assert set(levels(judge_settings(Cluster(GOOD), Config()))) == {Level.OK}


@pytest.mark.parametrize(
    ("key", "value", "level", "what"),
    [
        ("SLURM_VERSION", "20.11.9", Level.FAIL, "older than any"),
        ("SLURM_VERSION", "23.11.4", Level.WARNING, "not tested"),
        ("SLURM_VERSION", "", Level.FAIL, "release"),
        ("JobRequeue", "0", Level.WARNING, "only jobs submitted with --requeue"),
        ("PrologFlags", "", Level.FAIL, "PrologFlags=(none)"),
        ("PrologFlags", "Serial", Level.FAIL, "no mark of the job's start"),
        ("JobFileAppend", "0", Level.WARNING, "loses its log"),
        ("PrologEpilogTimeout", "30", Level.FAIL, "PrologEpilogTimeout=30"),
        ("PrologEpilogTimeout", "80 sec", Level.WARNING, "while it waits for a node"),
        ("AccountingStorageType", "accounting_storage/slurmdbd", Level.WARNING, "job_comment"),
        ("SlurmctldParameters", "enable_expedited_requeue", Level.WARNING, "does not know it"),
    ],
)
def test_a_setting_that_is_in_the_way_is_named(key: str, value: str, level: Level, what: str) -> None:
    bad = [one for one in judge_settings(Cluster({**GOOD, key: value}), Config()) if one.level is not Level.OK]
    assert [one.level for one in bad] == [level]
    assert what in bad[0].what
    assert bad[0].fix


@pytest.mark.parametrize(
    "more",
    [
        {"JobFileAppend": "0", "CliFilterPlugins": "lua"},
        {"PrologFlags": "Contain,X11"},
        {"PrologEpilogTimeout": "120"},
        {"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStoreFlags": "job_comment,job_script"},
        {"SLURM_VERSION": "26.05.5", "SlurmctldParameters": "enable_expedited_requeue"},
    ],
)
def test_other_ways_to_the_same_are_good_too(more: dict[str, str]) -> None:
    assert set(levels(judge_settings(Cluster({**GOOD, **more}), Config()))) == {Level.OK}


def test_a_gate_that_acts_needs_jobs_to_be_requeued_unheld() -> None:
    gate = Config(prolog_gate=Gate.ACT)
    assert Level.WARNING in levels(judge_settings(Cluster(GOOD), gate))
    unheld = {**GOOD, "SchedulerParameters": "bf_interval=1,nohold_on_prolog_fail"}
    assert set(levels(judge_settings(Cluster(unheld), gate))) == {Level.OK}


CLUSTER = Cluster(
    {"SlurmctldHost[0]": "head(10.0.0.1)", "SlurmctldHost[1]": "spare", "SlurmUser": "slurm(64030)"},
    (Host("n1", "n1.example.org", 2), Host("gpu7", "rack3", 8)),
)


@pytest.mark.parametrize(
    ("host", "roles"),
    [
        ("head.example.org", {Role.CONTROLLER}),
        ("spare", {Role.CONTROLLER}),
        ("n1", {Role.NODE}),
        ("rack3", {Role.NODE}),
        ("elsewhere", {Role.LOGIN}),
    ],
)
def test_a_machines_role_is_what_slurm_conf_says(host: str, roles: set[Role]) -> None:
    assert roles_of(CLUSTER, host) == roles


def test_a_role_that_is_asked_for_counts_also_when_slurm_does_not_answer() -> None:
    assert own_machine(None, (), "") == Machine(frozenset(), "")
    assert own_machine(None, (Role.NODE,), "n7") == Machine(frozenset({Role.NODE}), "n7")
    assert own_machine(CLUSTER, (Role.CONTROLLER,), "n7").node == ""


@pytest.mark.parametrize(
    ("gres", "number"), [("(null)", 0), ("gpu:2", 2), ("gpu:a100:4(S:0-1),gpu:2,shard:8", 6), ("mps:100", 0)]
)
def test_the_gpus_in_a_gres_are_counted(gres: str, number: int) -> None:
    assert _gpus(gres) == number


def found(settings: Config, brake: str = "", overrides: object = MappingProxyType({})) -> list[Finding]:
    return list(rehearse(Stagehand(settings, overrides, "n1", 1764429940.0, brake)))  # type: ignore[arg-type]


def test_a_lost_gpu_would_be_failed_over_and_a_bug_would_not() -> None:
    lost, own, decision = found(Config(mode=Mode.ACT))
    assert levels((lost, own, decision)) == [Level.OK] * 3
    assert "hardware, xid79" in lost.what
    assert "application, xid31" in own.what
    assert decision.what.endswith("failover 1 of 3; excluded: n1")


@pytest.mark.parametrize(
    ("settings", "brake", "level", "fix"),
    [
        (Config(), "", Level.WARNING, "mode: act"),
        (Config(mode=Mode.ACT), "failover is paused (root)", Level.FAIL, "slurm-ft unpause"),
        (Config(mode=Mode.ACT, limit=0), "", Level.FAIL, "limit and limit_max"),
        (Config(mode=Mode.ACT, rules_off=frozenset({"hardware_fault"})), "", Level.FAIL, "verdict above"),
    ],
)
def test_a_decision_that_would_not_help_is_told(settings: Config, brake: str, level: Level, fix: str) -> None:
    decision = found(settings, brake)[-1]
    assert decision.level is level
    assert fix in decision.fix


def test_an_override_that_changes_the_verdict_is_told() -> None:
    harmless = Override(Blame.APPLICATION, NodeAction.NONE, "ticket 4711")
    guilty = Override(Blame.HARDWARE, NodeAction.DRAIN, "ticket 4712")
    overrides = {(EventKind.XID, 79): harmless, (EventKind.XID, 31): guilty}
    lost, own, decision = found(Config(mode=Mode.ACT), overrides=overrides)
    assert levels((lost, own, decision)) == [Level.FAIL, Level.WARNING, Level.FAIL]


class TestRecords:
    def test_private_ones_are_fine(self, tmp_path: Path) -> None:
        state = tmp_path / "state"
        (state / "alerts").mkdir(parents=True)
        for path in (state, state / "alerts"):
            path.chmod(0o750)
        (state / "journal.jsonl").touch(mode=0o640)
        assert records.check_privacy(state).level is Level.OK

    @pytest.mark.parametrize("mode", [0o755, 0o770, 0o751])
    def test_a_state_directory_that_is_open_fails(self, tmp_path: Path, mode: int) -> None:
        tmp_path.chmod(mode)
        assert records.check_privacy(tmp_path).level is Level.FAIL

    def test_one_open_file_is_named(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o750)
        (tmp_path / "open").touch()
        (tmp_path / "open").chmod(0o644)
        finding = records.check_privacy(tmp_path)
        assert finding.level is Level.WARNING
        assert finding.fix == f"chmod o-rwx {tmp_path / 'open'}"

    def test_a_missing_one_fails_on_the_controller_alone(self, tmp_path: Path) -> None:
        gone = tmp_path / "none"
        assert records.check_state(gone, frozenset({Role.CONTROLLER}), "slurm").level is Level.FAIL
        assert records.check_state(gone, frozenset({Role.NODE}), "slurm").level is Level.WARNING

    def test_one_of_another_owner_fails_on_the_controller(self, tmp_path: Path) -> None:
        finding = records.check_state(tmp_path, frozenset({Role.CONTROLLER}), "slurm")
        assert (finding.level, finding.fix) == (Level.FAIL, f"chown -R slurm: {tmp_path}")

    @pytest.mark.parametrize("options", ["ro", "size=4k,nr_inodes=9"])
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
    def test_one_that_is_read_only_or_full_fails(self, tmp_path: Path, options: str) -> None:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", tmp_path], check=False).returncode:
            pytest.skip("this machine lets nobody mount")
        try:
            if "ro" not in options:
                (tmp_path / "full").write_bytes(b"x" * 4096)
            finding = records.check_state(tmp_path, frozenset({Role.NODE}), "slurm")
            left = len(list(tmp_path.iterdir()))
        finally:
            subprocess.run(["umount", tmp_path], check=True)
        assert finding.level is Level.FAIL
        assert ("Read-only" if options == "ro" else "No space") in finding.what
        assert left == ("ro" not in options)

    def test_one_that_can_be_written_to_is_fine_and_stays_empty(self, tmp_path: Path) -> None:
        assert records.check_state(tmp_path, frozenset({Role.NODE}), "slurm").level is Level.OK
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("why", [errno.EROFS, errno.ENOSPC])
    def test_what_the_system_says_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: int) -> None:
        def refuse_it(**_: object) -> None:
            raise OSError(why, os.strerror(why))

        monkeypatch.setattr("tempfile.TemporaryFile", refuse_it)
        finding = records.check_state(tmp_path, frozenset({Role.NODE}), "slurm")
        assert (finding.level, os.strerror(why) in finding.what) == (Level.FAIL, True)

    def test_a_log_that_everybody_reads_fails(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        assert records.check_log(path).level is Level.WARNING
        path.touch()
        path.chmod(0o644)
        assert records.check_log(path).level is Level.FAIL
        path.chmod(0o640)
        assert records.check_log(path).level is Level.OK


class TestSensors:
    @pytest.mark.parametrize(
        ("evidence", "level"),
        [
            (Evidence("kernel_log", readable=True), Level.OK),
            (
                Evidence("kernel_log", readable=True, detail="the marker of the attempt's start is missing"),
                Level.WARNING,
            ),
            (Evidence("kernel_log", readable=False, detail="/dev/kmsg: Operation not permitted"), Level.FAIL),
        ],
    )
    def test_a_kernel_log_without_the_mark_convicts_nobody(self, evidence: Evidence, level: Level) -> None:
        assert sensors.judge_kernel_log(sensors.Look(evidence, 0.005), Path("/dev/kmsg")).level is level

    def test_a_log_that_is_not_there_fails(self, tmp_path: Path) -> None:
        look = sensors.look_at_kernel_log(tmp_path / "none", frozenset())
        assert sensors.judge_kernel_log(look, tmp_path / "none").level is Level.FAIL

    @pytest.mark.parametrize(
        ("known", "gres", "level"),
        [(2, 2, Level.OK), (1, 2, Level.FAIL), (0, 0, Level.WARNING), (0, None, Level.WARNING)],
    )
    def test_gpus_that_slurm_has_and_we_do_not_fail(self, known: int, gres: int | None, level: Level) -> None:
        gpus = frozenset(f"0000:{number:02x}:00" for number in range(known))
        assert sensors.judge_inventory(gpus, gres, "n1").level is level


class TestNvmlAndDcgm:
    """Through the real child process, with a library that stands in for NVIDIA's."""

    @pytest.fixture(autouse=True)
    def _driver(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sensors, "PROC_ROOT", tmp_path)  # as if the driver were loaded
        monkeypatch.setattr(sensors, "NVML_S", 2.0)
        monkeypatch.setattr(dcgm, "DCGMI", str(tmp_path / "dcgmi"))

    def told(self, **more: object) -> list[Finding]:
        settings = Config(gpu_inventory={"n1": (f"{FIRST}.0", f"{SECOND}.0")}, **more)  # type: ignore[arg-type]
        return list(sensors.check_sensors(None, settings, Machine(frozenset({Role.NODE}), "n1")))[-2:]

    def test_both_answer(self, nvml_stub: NvmlStub) -> None:
        nvml_stub.answers()
        nvml, off = self.told(nvml_timeout=20.0)
        assert (nvml.level, "its child process answers in" in nvml.what) == (Level.OK, True)
        assert (off.level, off.what) == (Level.OK, "DCGM: switched off (dcgm: off)")

    @pytest.mark.parametrize(("line", "said"), [("handle 0 4", "no permission"), ("hang 1 handle", "no answer")])
    def test_a_library_that_refuses_or_hangs_fails(self, nvml_stub: NvmlStub, line: str, said: str) -> None:
        nvml_stub.answers(line)
        nvml, _ = self.told()
        assert (nvml.level, said in nvml.what) == (Level.FAIL, True), nvml.what

    def test_a_dcgm_that_is_wanted_and_missing_fails(self, nvml_stub: NvmlStub) -> None:
        nvml_stub.answers()
        _, missing = self.told(dcgm="dcgmi")
        assert (missing.level, "No such file" in missing.what) == (Level.FAIL, True)


class TestHooks:
    def cluster(self, program: Path) -> Cluster:
        return Cluster({"Epilog": str(program), "SlurmUser": "root(0)"})

    def epilog(self, program: Path) -> Finding:
        machine = Machine(frozenset({Role.NODE}), "n1")
        told = hooks.check_hooks(self.cluster(program), machine)
        return next(one for one in told if one.what.startswith("Epilog"))

    def test_a_hook_that_is_not_set_fails(self) -> None:
        told = list(hooks.check_hooks(Cluster(GOOD), Machine(frozenset({Role.CONTROLLER}))))
        missing = [one.what for one in told if one.level is Level.FAIL]
        assert missing[-1].startswith("EpilogSlurmctld is not set: no job fails over")

    @pytest.mark.skipif("os.geteuid() != 0", reason="hooks belong to root")
    def test_one_that_others_can_change_fails(self, tmp_path: Path) -> None:
        for path in (tmp_path, *list(tmp_path.parents)[:2]):
            path.chmod(0o755)
        program = tmp_path / "epilog"
        program.write_text("#!/bin/sh\nexec /opt/slurm_ft/share/slurm_ft/epilog/node_epilog\n")
        program.chmod(0o775)
        assert (self.epilog(program).level, "writable" in self.epilog(program).what) == (Level.FAIL, True)
        program.chmod(0o644)
        assert (self.epilog(program).level, "not executable" in self.epilog(program).what) == (Level.FAIL, True)
        program.chmod(0o755)
        assert self.epilog(program).level is not Level.FAIL
        program.write_text("#!/bin/sh\n")
        assert (self.epilog(program).level, "does not name node_epilog" in self.epilog(program).what) == (
            Level.WARNING,
            True,
        )


class TestChannels:
    def check(self, tmp_path: Path, **more: object) -> list[Finding]:
        """One channel to a host off the site, whose URL holds a secret."""
        url = tmp_path / "url"
        url.write_text("https://me:SECRETWORD@hooks.example.org\n")
        url.chmod(0o600)
        settings = {"alert_channels": [{"name": "ops", "type": "alertmanager", "url_file": str(url)}], **more}
        return list(channels.check_channels(config.parse(yaml.safe_dump(settings))))

    def test_none_is_worth_a_warning(self) -> None:
        assert levels(tuple(channels.check_channels(Config()))) == [Level.WARNING, Level.OK]

    def test_one_that_may_be_used_is_named_without_its_secret(self, tmp_path: Path) -> None:
        channel, residency = self.check(tmp_path)
        assert (channel.level, residency.level) == (Level.OK, Level.OK)
        assert "ops: alertmanager to hooks.example.org" in channel.what
        assert "SECRETWORD" not in channel.what

    def test_one_off_the_site_fails_where_residency_is_strict(self, tmp_path: Path) -> None:
        channel, _ = self.check(tmp_path, residency="strict")
        assert channel.level is Level.FAIL
        assert "residency is strict and it is not among alert_destinations" in channel.what
        assert self.check(tmp_path, residency="strict", alert_destinations=[".example.org"])[0].level is Level.OK

    def test_a_secret_that_others_can_read_fails(self, tmp_path: Path) -> None:
        self.check(tmp_path)
        settings = {"alert_channels": [{"name": "ops", "type": "alertmanager", "url_file": str(tmp_path / "url")}]}
        (tmp_path / "url").chmod(0o644)
        channel, _ = channels.check_channels(config.parse(yaml.safe_dump(settings)))
        assert (channel.level, "others can read it" in channel.what) == (Level.FAIL, True)


@pytest.mark.parametrize(
    ("nodes", "mode", "what"),
    [
        ([node("n2")], Mode.ACT, "Slurm knows no node n1"),
        ([node("n1", "idle+drain", "repair"), node("n2")], Mode.ACT, "out of service: repair"),
        ([node("n1"), node("n2")], Mode.OBSERVE, "mode is observe"),
        ([node("n1", comment="[slurm_ft.brake paused 1764429940: root]"), node("n2")], Mode.ACT, "failover is paused"),
        ([node("n1"), node("n2", "down")], Mode.ACT, "no node but n1 is in service"),
        ([node("n1"), node("n2")], Mode.ACT, "cannot be written from"),
    ],
)
def test_a_canary_that_could_not_end_well_does_not_begin(nodes: list[object], mode: Mode, what: str) -> None:
    with pytest.raises(SlurmFtError, match=what):
        refuse(nodes, Config(mode=mode), Wishes("n1"))  # type: ignore[arg-type]


def test_a_canary_that_runs_without_the_prologs_note_says_what_is_missing(
    tmp_path: Path, job_record: JobRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Runs:
        def job(self, _: str) -> JobRecord:
            return replace(job_record, state="RUNNING", nodes="n1")

    monkeypatch.setattr(canary, "START_S", 0.0)
    steps = canary._steps(canary.Canary(Runs(), Config(), "n1", "canary", "12", tmp_path, 0.0))  # type: ignore[arg-type]
    assert next(steps).level is Level.OK
    with pytest.raises(canary._StopError) as stop:
        next(steps)
    finding = stop.value.finding
    assert f"the Prolog on n1 leaves no note of job 12 in {tmp_path}/attempts" in finding.what
    assert "SLURM_FT_RUN_DIR" in finding.fix


def test_a_broken_configuration_is_the_first_thing_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "slurm_ft.yaml"
    path.write_text("mode: acts\n")
    monkeypatch.setenv("SLURM_FT_CONFIG", str(path))
    assert main(["doctor", "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert (told["v"], told["healthy"]) == (1, False)
    assert [one["stage"] for one in told["findings"]] == ["config"]
    assert "'acts' is not one of" in told["findings"][0]["what"]


def test_a_cluster_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "slurm_ft.yaml"
    path.write_text(f"slurm_bin: {tmp_path}\nmode: act\n")
    monkeypatch.setenv("SLURM_FT_CONFIG", str(path))
    assert main(["doctor", "--role", "login"]) == 3
    told = capsys.readouterr().out
    assert "fail     slurm: `scontrol show config` could not start" in told
    assert "ok       verdict: a made-up Xid 79" in told
    assert os.linesep + "this machine: login" in told

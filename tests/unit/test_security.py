"""What docs/threat_model.md promises, tried one by one: whoever may not decide must neither run nor redirect a hook,
nor fill its memory, nor find somebody's secret in what it writes. Others are tried elsewhere: a real cluster in
tests/slurm/test_security.py, checkpoints in test_checkpoints_hostile.py, the alerts' secrets in test_alert_delivery.py.
"""

from __future__ import annotations

import os
import stat
import sys
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_hooks_shell import CONTROLLER, HOSTILE, NODE, ROOT, Stage

from slurm_ft import config, journal, log, training_config
from slurm_ft.alerts import outbox_file
from slurm_ft.alerts.outbox import Outbox
from slurm_ft.classify import classify
from slurm_ft.config import Config
from slurm_ft.controller.job_lock import job_lock
from slurm_ft.errors import ConfigError, SlurmCommandError
from slurm_ft.failover import comment_tag, ledger, node_record, resume_tag
from slurm_ft.journal_entry import Entry
from slurm_ft.journal_entry import Stage as JournalStage
from slurm_ft.model import Evidence, ExitStatus, JobKey, Ledger
from slurm_ft.node import event_file, judgement_file
from slurm_ft.node.epilog import node_verdict
from slurm_ft.override_file import parse_overrides
from slurm_ft.sensors import journal as journal_sensor
from slurm_ft.sensors.kernel_log import Window, read_kernel_log
from slurm_ft.sensors.output_signatures import output_events
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobUpdate
from slurm_ft.state_file import give_to_owner_of, open_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = Path(sys.executable).parent / "slurm-ft"
HOOKS = ("prolog/node_prolog", "epilog/node_epilog", "prolog/slurmctld_prolog", "epilog/slurmctld_epilog")
ENDED = {**NODE, **CONTROLLER, "SLURM_JOB_EXIT_CODE2": "1:0", "SLURM_JOB_RESTART_COUNT": "1"}
# What Slurm's hooks are told and a user chooses.
OF_THE_USER = (
    "SLURM_JOB_NAME", "SLURM_JOB_COMMENT", "SLURM_JOB_PARTITION", "SLURM_JOB_ACCOUNT", "SLURM_JOB_CONSTRAINTS",
    "SLURM_JOB_WORK_DIR", "SLURM_JOB_STDOUT", "SLURM_JOB_STDERR", "SLURM_JOB_STDIN", "SLURM_JOB_RESERVATION",
    "SLURM_WCKEY", "SLURM_JOB_LICENSES", "SLURM_JOB_EXTRA",
)  # fmt: skip
TEXTS = [
    *HOSTILE, "\"; touch TRACE/x; \"", "$(touch TRACE/x)[slurm_ft]`touch TRACE/x`", "\u202e$(touch TRACE/x)é\uff1b",
    "[slurm_ft n=1/3 ex=$(touch TRACE/x)]", "../../../etc/passwd", "%j%x\\\n$(touch TRACE/x)", "--help", "a\tb\x1b[2Jc",
]  # fmt: skip
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
REFUSED = "is no plain file|symbolic links|No such device"  # the last: a pipe that nobody reads


def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make files of somebody else")


class TestTextOfAUser:
    @pytest.mark.parametrize("hook", HOOKS)
    @pytest.mark.parametrize("text", TEXTS)
    def test_is_neither_run_by_the_shell_nor_passed_to_a_command(self, tmp_path: Path, hook: str, text: str) -> None:
        stage = Stage(tmp_path)
        done = stage.run(hook, ENDED | dict.fromkeys(OF_THE_USER, text))
        assert done.returncode == 0
        assert set(stage.started) <= {"slurm-ft", "squeue"}
        known = {
            "hook node-epilog",
            "hook slurmctld-epilog",
            "hook slurmctld-prolog",
            "-h -t all -j 12 -O RestartCnt,EndTime",
        }
        assert {line for lines in stage.started.values() for line in lines} <= known

    @pytest.mark.parametrize("text", TEXTS)
    def test_does_nothing_in_the_python_part(self, tmp_path: Path, text: str) -> None:
        stage = Stage(tmp_path)
        for name in ("scontrol", "sinfo", "scancel"):
            stage.fake(name)
        stage.config.write_text(
            f"mode: act\nslurm_bin: {tmp_path}\nlog_file: {tmp_path}/log\nstate_dir: {tmp_path}/s\n"
        )
        user = {"SLURM_JOB_UID": "65534", "SLURM_JOB_GID": "65534", "SLURM_JOB_USER": "nobody"}
        variables = ENDED | user | dict.fromkeys(OF_THE_USER, text) | {"SLURM_FT_BIN": str(COMMAND)}
        assert stage.run("epilog/node_epilog", variables).returncode == 0
        assert "job 12 attempt" in (tmp_path / "log").read_text()
        assert "x" not in stage.started
        assert all("touch" not in line for lines in stage.started.values() for line in lines)

    def test_begins_no_line_of_its_own_in_the_log_and_moves_no_cursor(self, tmp_path: Path) -> None:
        logger = log.open_log(Config(log_file=tmp_path / "log"), "a_hook")
        logger.error("job said: %s", "a\n2026-01-01 00:00:00,000 1 node_epilog INFO drained n1\r\x1b[2Jb\u202e")
        first, second, *rest = (tmp_path / "log").read_text().split("\n")
        assert "a_hook ERROR job said: a" in first
        assert second == r"    2026-01-01 00:00:00,000 1 node_epilog INFO drained n1\r\x1b[2Jb\u202e"
        assert rest == [""]

    def test_cannot_forge_a_record_in_a_reason(self, fault: object) -> None:
        forged = "x || hardware xid79 gpu - job 13.0 at 1.0: slurm_ft: hardware xid79 gpu - job 13.0 at 1.0: y"
        verdict = type(fault)(**{name: getattr(fault, name) for name in fault.__slots__} | {"text": forged})  # type: ignore[attr-defined]
        assert [found.raw_id for found in node_record.in_reason(node_record.add("", verdict), "n1")] == [12]


class TestEnvironment:
    """Slurm gives hooks none of it (tests/slurm); a daemon that somebody started by hand may."""

    @pytest.mark.parametrize("hook", HOOKS)
    def test_leads_a_hook_to_no_other_program(self, tmp_path: Path, hook: str) -> None:
        stage = Stage(tmp_path)
        evil = tmp_path / "evil"
        evil.mkdir()
        for name in (
            "dd",
            "awk",
            "grep",
            "timeout",
            "setsid",
            "stat",
            "id",
            "date",
            "rm",
            "mkdir",
            "touch",
            "sh",
            "logger",
        ):
            (evil / name).write_text(f'#!/bin/sh\n/usr/bin/touch {stage.trace}/evil\nexec /usr/bin/{name} "$@"\n')
            (evil / name).chmod(0o755)
        script = evil / "startup"
        script.write_text(f"/usr/bin/touch {stage.trace}/evil\n")
        variables = {"PATH": str(evil), "BASH_ENV": str(script), "ENV": str(script), "IFS": "/s", "CDPATH": str(evil)}
        assert stage.run(hook, ENDED | variables).returncode == 0
        assert "evil" not in stage.started
        assert stage.started == Stage_of_plain(tmp_path / "plain", hook).started

    def test_leads_python_to_no_other_code(self, tmp_path: Path) -> None:
        stage = Stage(tmp_path)
        evil = tmp_path / "evil"
        evil.mkdir()
        for name in ("sitecustomize", "usercustomize", "yaml", "startup"):
            (evil / f"{name}.py").write_text(f"import os; os.mkdir({str(stage.trace / name)!r})\n")
        stage.config.write_text(f"log_file: {tmp_path}/log\nstate_dir: {tmp_path}/s\n")
        variables = {
            "SLURM_FT_BIN": str(COMMAND), "PYTHONPATH": str(evil), "PYTHONSTARTUP": str(evil / "startup.py"),
            "PYTHONHOME": str(evil), "PYTHONINSPECT": "1", "PYTHONWARNINGS": "error::startup.X",
            "PYTHONUSERBASE": str(evil),
        }  # fmt: skip
        assert stage.run("epilog/node_epilog", ENDED | variables).returncode == 0
        assert "job 12 attempt" in (tmp_path / "log").read_text()
        assert list(stage.trace.iterdir()) == []


def Stage_of_plain(directory: Path, hook: str) -> Stage:  # noqa: N802
    directory.mkdir()
    stage = Stage(directory)
    stage.run(hook, ENDED)
    return stage


class TestWritableByOthers:
    """A hook runs as root what its installation and its configuration say."""

    @pytest.mark.parametrize("hook", HOOKS[1:])
    @pytest.mark.parametrize(
        ("of", "mode"), [("command", 0o775), ("command", 0o757), ("directory", 0o770), ("directory", 0o777)]
    )
    def test_a_command_is_not_started_and_the_hook_says_so(self, tmp_path: Path, hook: str, of: str, mode: int) -> None:
        stage = Stage(tmp_path)
        (tmp_path / "slurm-ft" if of == "command" else tmp_path).chmod(mode)
        done = stage.run(hook, ENDED)
        assert done.returncode == 0
        assert "slurm-ft" not in stage.started
        assert f"others may write to {tmp_path}" in done.stderr
        assert "chmod go-w it; nothing was done for job 12" in done.stderr

    @pytest.mark.parametrize("hook", HOOKS[1:])
    def test_a_command_of_another_user_is_not_started(self, tmp_path: Path, hook: str) -> None:
        as_root()
        stage = Stage(tmp_path)
        os.chown(tmp_path / "slurm-ft", 65534, 65534)
        done = stage.run(hook, ENDED)
        assert (done.returncode, "slurm-ft" in stage.started) == (0, False)
        assert f"others may write to {tmp_path}/slurm-ft" in done.stderr

    @pytest.mark.parametrize("change", ["group", "everybody", "owner"])
    def test_a_configuration_names_no_program_to_the_shell(self, tmp_path: Path, change: str) -> None:
        stage = Stage(tmp_path)
        if change == "owner":
            as_root()
            os.chown(stage.config, 65534, 65534)
        else:
            stage.config.chmod(0o664 if change == "group" else 0o646)
        assert stage.run("epilog/slurmctld_epilog", CONTROLLER).returncode == 0
        assert stage.started == {"slurm-ft": ["hook slurmctld-epilog"]}  # which refuses the file, and says so

    def test_a_configuration_of_another_user_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        as_root()
        path = tmp_path / "slurm_ft.yaml"
        path.write_text("mode: act\n")
        os.chown(path, 65534, 65534)
        monkeypatch.setenv(config.CONFIG_VARIABLE, str(path))
        with pytest.raises(ConfigError, match=r"owned by user id 65534\. chown root"):
            config.load()


class TestStateDirectory:
    """On the controller it is SlurmUser's, and root works in it too."""

    @pytest.fixture
    def victim(self, tmp_path: Path) -> Iterator[Path]:
        victim = tmp_path / "victim"
        victim.write_text("root's own\n")
        victim.chmod(0o600)
        yield victim
        assert (victim.read_text(), stat.S_IMODE(victim.stat().st_mode), victim.stat().st_uid) == (
            "root's own\n",
            0o600,
            os.geteuid(),
        )

    @pytest.fixture
    def state(self, tmp_path: Path) -> Path:
        state = tmp_path / "state"
        state.mkdir()
        if os.geteuid() == 0:
            os.chown(state, 65534, 65534)
        return state

    @pytest.mark.parametrize("how", ["link", "hard link", "pipe"])
    def test_what_lies_in_a_files_place_is_not_written_to(self, state: Path, victim: Path, how: str) -> None:
        def put(path: Path) -> None:
            path.parent.mkdir(exist_ok=True)
            if how == "link":
                path.symlink_to(victim)
            elif how == "hard link":
                path.hardlink_to(victim)
            else:
                os.mkfifo(path)

        entry = Entry(at=1.0, stage=JournalStage.SEEN, key=JobKey(12, "12", 0))
        put(state / journal.FILE_NAME)
        with pytest.raises(OSError, match=REFUSED):
            journal.append(state, entry)
        put(state / "locks" / "12")
        with job_lock(state, 12, 0.1) as held:
            assert not held
        judged, events = judgement_file.path_of(state, "n1"), event_file.path_of(state, "n1")
        for path in (judged, events):
            put(path)
        verdict = classify((), ExitStatus(1, 0))
        with pytest.raises(OSError, match=REFUSED):
            judgement_file.append(judged, judgement_file.judgement(verdict, (), "12.0", now=1.0, uptime=1.0))
        with pytest.raises(OSError, match=REFUSED):
            event_file.append(events, ())

    def test_no_file_that_root_had_before_is_given_away(self, state: Path, victim: Path) -> None:
        as_root()
        descriptor = os.open(victim, os.O_RDWR)
        give_to_owner_of(state, descriptor)
        os.close(descriptor)
        made = open_plain(state / "new", os.O_RDWR | os.O_CREAT)
        give_to_owner_of(state, made)
        os.close(made)
        assert (state / "new").stat().st_uid == 65534

    def test_the_log_follows_no_link_there(self, state: Path, victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log, "SYSLOG", state / "none")
        (state / "slurm_ft.log").symlink_to(victim)
        log.open_log(Config(state_dir=state), "a_hook").error("x")

    def test_nobody_else_can_read_what_hooks_write_whatever_the_umask(self, tmp_path: Path) -> None:
        stage = Stage(tmp_path)
        (tmp_path / "s").mkdir()
        stage.config.write_text(f"log_file: {tmp_path}/log\nstate_dir: {tmp_path}/s\n")
        before = os.umask(0)
        try:
            stage.run("epilog/node_epilog", ENDED | {"SLURM_FT_BIN": str(COMMAND)})
        finally:
            os.umask(before)
        written = [tmp_path / "log", *(path for path in (tmp_path / "s").rglob("*"))]
        assert len(written) > 2
        assert [path for path in written if path.stat().st_mode & 0o027] == []


class TestSecrets:
    LINE = "RuntimeError: CUDA error: uncorrectable ECC error encountered at https://me:T0KEN-secret@host?token=T0KEN-secret"

    def test_what_a_job_printed_stands_in_no_reason_that_anybody_can_read(self, tmp_path: Path) -> None:
        evidence = (Evidence("job_output", readable=True, events=output_events([self.LINE])),)
        verdict = classify(evidence, ExitStatus(1, 0))
        assert verdict.cause == "cuda_ecc"
        note = node_verdict(verdict, JobKey(12, "12", 0), "n1")
        assert "T0KEN" not in node_record.add("", note) + verdict.reason
        assert "uncorrectable ECC" in node_record.add("", note)
        kept = judgement_file.judgement(verdict, evidence, "12.0", now=1.0, uptime=1.0)
        assert "T0KEN" in kept.seen[0].lines[0][1]  # in root's own record the evidence is whole

    @pytest.mark.parametrize(
        "channel",
        [
            "{name: a, type: apprise, url: 'json://u:T0KEN@h'}",
            "{name: a, type: alertmanager, url: 'http://u:T0KEN@h'}",
            "{name: a, type: datadog, url: 'https://h/?api_key=T0KEN', key_env: K}",
            "{name: a, type: T, url: 'json://u:T0KEN@h'}",
            "{name: 'a b', url: 'json://u:T0KEN@h'}",
            "{name: a, type: datadog, url: 'https://h', key: T0KEN}",
        ],
    )
    def test_a_misplaced_one_is_refused_without_being_quoted(self, channel: str) -> None:
        with pytest.raises(ConfigError) as caught:
            config.parse(f"alert_channels: [{channel}]")
        assert "T0KEN" not in str(caught.value)


class TestBounds:
    @pytest.fixture(autouse=True)
    def bounded(self) -> Iterator[None]:
        tracemalloc.start()
        yield
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 150 << 20

    @pytest.mark.parametrize(
        "filling", ["[slurm_ft ", "[slurm_ft n=1 ", "[slurm_ft.resume step=1 ", "x" * 9, "]" * 9, "\n[slurm_ft] "]
    )
    def test_a_giant_comment(self, filling: str) -> None:
        comment = filling * (1 << 18)
        tag, mark = comment_tag.read(comment), resume_tag.read(comment)
        assert comment_tag.write(comment, tag or comment_tag.Tag(1)) is None
        assert mark is None
        assert node_record.read(comment, "n1") == ()

    @pytest.mark.parametrize("nested", ["[", '{"a":', "x"])
    def test_a_deep_or_giant_admin_comment(self, nested: str) -> None:
        foreign = ledger.START + '"v":1,"run":' + nested * 100_000
        assert ledger.read(foreign) is None
        kept = ledger.write(foreign, Ledger("r", (), ()))
        assert kept.startswith(foreign)
        assert ledger.read(kept) == Ledger("r", (), ())

    def test_an_admin_comment_of_damaged_ledgers_without_an_end(self) -> None:
        assert ledger.read(ledger.START * 100_000) is None
        damaged = (ledger.START + '"v":1} ') * 20
        assert ledger.read(ledger.write(damaged, Ledger("r", (), ()))) == Ledger("r", (), ())

    def test_an_admin_comment_that_no_command_can_carry_is_an_error_with_a_name(self) -> None:
        slurm = CommandLine(Path("/usr/bin"), None, 5.0)
        with pytest.raises(SlurmCommandError, match=r"scontrol update JobId=1 .*could not start.*too long"):
            slurm.update_job("1", JobUpdate(admin_comment="x" * (1 << 21)))

    def test_a_giant_journal(self, tmp_path: Path) -> None:
        entry = Entry(at=1.0, stage=JournalStage.SEEN, key=JobKey(12, "12", 0))
        for name in (journal.OLD_NAME, journal.FILE_NAME):
            with (tmp_path / name).open("wb") as file:
                file.truncate(1 << 32)
        journal.append(tmp_path, entry)
        assert journal.entries(tmp_path, 12) == [entry]
        assert journal.recent(tmp_path, 0.5) == [entry]

    def test_giant_records_of_a_node_and_of_alerts(self, tmp_path: Path) -> None:
        box = tmp_path / "alerts" / outbox_file.FILE_NAME
        for path in (judgement_file.path_of(tmp_path, "n1"), event_file.path_of(tmp_path, "n1"), box):
            path.parent.mkdir()
            with path.open("wb") as file:
                file.truncate(1 << 32)
        assert judgement_file.read(judgement_file.path_of(tmp_path, "n1")) == []
        assert event_file.read(event_file.path_of(tmp_path, "n1")) == []
        assert outbox_file.load(tmp_path) == Outbox()

    @pytest.mark.parametrize("name", ["journal", "judged", "events"])
    def test_deep_json_in_a_record_is_passed_over(self, tmp_path: Path, name: str) -> None:
        readers = {
            "journal": (tmp_path / journal.FILE_NAME, lambda: journal.entries(tmp_path)),
            "judged": (tmp_path / "j", lambda: judgement_file.read(tmp_path / "j")),
            "events": (tmp_path / "e", lambda: event_file.read(tmp_path / "e")),
        }
        path, read = readers[name]
        path.write_text("[" * 100_000 + "\n" + '{"a":' * 100_000 + "\n")
        assert read() == []

    def test_a_kernel_log_of_one_giant_line(self, tmp_path: Path) -> None:
        path = tmp_path / "kmsg"
        path.write_bytes(b"3,1,5000000,-;NVRM: Xid (PCI:0000:3b:00): 79, " + b"x" * (64 << 20) + b"\n")
        window = Window(marker=None, start=1.0, end=None, grace=0.0, boot_id=None)
        found = read_kernel_log(path, window, frozenset({"0000:3b:00"}))
        assert [event.code for event in found.events] == [79]
        assert all(len(event.source) <= 512 for event in found.events)

    def test_a_journal_of_one_giant_line(self, tmp_path: Path) -> None:
        command = tmp_path / "journalctl"
        record = '{"_TRANSPORT": "kernel", "MESSAGE": "seen", "_SOURCE_MONOTONIC_TIMESTAMP": "5000000"}'
        command.write_text(
            f"#!/bin/sh\n/usr/bin/head -c 200000000 /dev/zero | /usr/bin/tr '\\0' x\necho\necho '{record}'\n"
        )
        command.chmod(0o755)
        records = list(journal_sensor.journal_records(command, 0.0, time.monotonic() + 60))
        assert records == [b"0,0,5000000,-;seen\n"]

    @pytest.mark.parametrize(
        "text", [BOMB, "partitions: &a [*a]\n", f"{BOMB}partitions: *i\n", "alert_channels: &a [{name: *a}]\n"]
    )
    def test_yaml_that_grows_in_the_configuration(self, text: str) -> None:
        with pytest.raises(ConfigError, match="aliases"):
            config.parse(text, "f.yaml")
        with pytest.raises(ConfigError, match="aliases"):
            parse_overrides(text, "o.yaml")

    def test_overrides_of_any_shape_and_size_are_refused_in_one_line(self) -> None:
        for text in (
            "xid: {109: {class: [hardware], reason: r}}",
            "xid: {109: {class: {a: b}, reason: r}}",
            "#" * 300_000,
            "[" * 400,
        ):
            with pytest.raises(ConfigError) as caught:
                parse_overrides(text, "o.yaml")
            assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        "text",
        [BOMB, f"{BOMB}x: {{<<: [*i]}}\n", "a: &a {b: *a}\n", "[" * 400, "a: " + "[" * 400, "#" * (2 << 20)],
        ids=range(6),
    )
    def test_a_trainings_yaml_that_grows_is_refused(self, text: str) -> None:
        with pytest.raises(training_config.ConfigError):
            training_config.rewritten(text, "/out/checkpoint-9")

    def test_a_trainings_yaml_with_an_anchor_is_rewritten(self) -> None:
        assert training_config.rewritten("a: &a [1, 2]\nb: *a\n", None).startswith("a: &a [1, 2]\nb: *a\n")


def test_the_threat_model_names_every_hook_and_what_it_reads() -> None:
    text = (ROOT / "docs" / "threat_model.md").read_text()
    assert [name for name in (*HOOKS, "prolog/task_prolog") if f"`{name}`" not in text] == []

"""The controller's hooks from their environment to what they ask of Slurm."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft import journal
from slurm_ft.alert import Alert, Kind
from slurm_ft.alert_channels import Channel, Secret, Service
from slurm_ft.alerts import spool, spooling
from slurm_ft.config import Config, Mode
from slurm_ft.controller import carry_out, epilog, prolog, reconcile
from slurm_ft.errors import HookEnvironmentError, SlurmCommandError
from slurm_ft.failover import comment_tag, ledger, node_record
from slurm_ft.journal_entry import to_json
from slurm_ft.model import Attempt, Domain, Ledger, NodeVerdict
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord

ENVIRON = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_EXIT_CODE2": "1:0",
    "SLURM_JOB_RESTART_COUNT": "0",
}
RESTARTED = {"SLURM_JOB_ID": "12", "SLURM_JOB_RESTART_COUNT": "1"}
COUNTED = Attempt(0, "n9", 1.0, 2.0, Domain.HARDWARE, "xid79", ("n9",), counted=True)


@pytest.fixture
def slurm(job_record: JobRecord, fault: NodeVerdict, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Job 12 has lost n1: its drain Reason says so."""
    drained = node("n1", "idle+drain", node_record.add("", fault), "")
    fake = FakeSlurm.of(job_record, drained, node("n2", "idle", "", ""))
    monkeypatch.setattr(CommandLine, "of", lambda _: fake)
    return fake


@pytest.fixture
def detached(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What the epilog would have run in a process of its own."""
    works: list[Callable[[], None]] = []
    monkeypatch.setattr(epilog, "detach", works.append)
    monkeypatch.setattr(reconcile, "SETTLE", 0.0)
    return works


@pytest.fixture
def config(tmp_path: Path, detached: list[Callable[[], None]]) -> Config:
    return Config(mode=Mode.ACT, state_dir=tmp_path, log_file=tmp_path / "log", node_epilog_wait=0)


def asked(slurm: FakeSlurm) -> list[object]:
    return [call[0] for call in slurm.changes]


def entries(config: Config) -> dict[str, dict[str, Any]]:
    return {entry.stage.value: to_json(entry) for entry in journal.entries(config.state_dir)}


class TestEpilog:
    def test_a_hardware_fault_is_requeued_recorded_and_released(
        self, slurm: FakeSlurm, config: Config, detached: list[Callable[[], None]]
    ) -> None:
        assert epilog.run(ENVIRON, config) == 0
        assert asked(slurm) == ["requeue", "update_job"]
        job = slurm.job_records["12"]
        assert job.comment == "team=vision [slurm_ft n=1/3 ex=n1 cause=xid79]"
        assert slurm.excluded["12"] == "n1"
        history = ledger.read(job.admin_comment)
        assert history is not None
        assert (history.count, history.excluded, history.attempts[0].number) == (1, ("n1",), 0)
        decided = entries(config)["decided"]
        assert (decided["action"], decided["rule"], decided["mode"]) == ("requeue", "hardware_fault", "act")
        assert (decided["job"], decided["attempt"], decided["run"]) == ("12", 0, history.run_id)
        assert list(entries(config)) == ["seen", "decided", "requeued", "recorded"]
        slurm.set_job("12", state="PENDING", submitted=2005.0)
        detached[0]()
        assert slurm.changes[-1][2].start_now  # type: ignore[attr-defined]
        assert entries(config)["released"]["submitted"] == 2005.0

    def test_observe_records_what_it_would_do_and_changes_nothing(
        self, slurm: FakeSlurm, config: Config, detached: list[Callable[[], None]]
    ) -> None:
        config = replace(config, mode=Mode.OBSERVE)
        assert epilog.run(ENVIRON, config) == 0
        assert slurm.changes == []
        assert detached == []
        assert entries(config).keys() == {"seen", "decided"}
        assert (entries(config)["decided"]["action"], entries(config)["decided"]["mode"]) == ("requeue", "observe")

    def test_a_note_in_a_comment_is_erased_once_it_was_read(
        self, slurm: FakeSlurm, config: Config, fault: NodeVerdict
    ) -> None:
        slurm.set_node("n1", state="idle+drain", reason="bad fan", comment=node_record.add("rack 7", fault))
        epilog.run(ENVIRON, config)
        assert slurm.node_records["n1"] == node("n1", "idle+drain", "bad fan", "rack 7")
        assert slurm.job_records["12"].restarts == 1

    def test_a_note_that_cannot_be_erased_costs_nothing(
        self, slurm: FakeSlurm, config: Config, fault: NodeVerdict
    ) -> None:
        slurm.set_node("n1", reason="", comment=node_record.add("", fault))
        slurm.refused.add("set_node_comment")
        assert epilog.run(ENVIRON, config) == 0
        assert slurm.job_records["12"].restarts == 1

    def test_a_users_error_changes_nothing(
        self, slurm: FakeSlurm, config: Config, detached: list[Callable[[], None]]
    ) -> None:
        slurm.set_node("n1", state="idle", reason="")
        epilog.run(ENVIRON, config)
        assert slurm.changes == []
        assert detached == []
        assert entries(config)["decided"]["state"] == "Pending - internalerror"

    def test_a_journal_that_cannot_be_written_costs_the_record_and_not_the_job(
        self, slurm: FakeSlurm, config: Config
    ) -> None:
        (config.state_dir / "file").touch()
        broken = replace(config, state_dir=config.state_dir / "file")
        assert epilog.run(ENVIRON, broken) == 0
        assert slurm.job_records["12"].restarts == 1
        assert "cannot be written" in (config.state_dir / "log").read_text()

    @pytest.mark.parametrize("log", ["missing/log", "."])
    def test_a_log_that_cannot_be_written_costs_nothing(self, slurm: FakeSlurm, config: Config, log: str) -> None:
        assert epilog.run(ENVIRON, replace(config, log_file=config.state_dir / log)) == 0
        assert slurm.job_records["12"].restarts == 1

    def test_a_user_who_resets_the_count_in_the_comment_wins_nothing(self, slurm: FakeSlurm, config: Config) -> None:
        spent = Ledger("run", tuple(replace(COUNTED, number=number) for number in range(3)), ("n9",))
        slurm.set_job("12", restarts=3, comment="[slurm_ft n=0/3]", admin_comment=ledger.write("", spent))
        _judge_attempt(slurm, 3)
        epilog.run({**ENVIRON, "SLURM_JOB_RESTART_COUNT": "3"}, config)
        assert slurm.changes == []
        assert entries(config)["decided"]["state"] == "Pending - maxretriesexceeded"

    @pytest.mark.parametrize("admin_comment", ["", "slurm_ft:{", 'slurm_ft:{"v":1}'])
    def test_an_erased_or_damaged_ledger_does_not_reset_the_count(
        self, slurm: FakeSlurm, config: Config, admin_comment: str
    ) -> None:
        slurm.set_job("12", restarts=1, comment="[slurm_ft n=1/3 ex=n9]", admin_comment=admin_comment)
        _judge_attempt(slurm, 1)
        epilog.run({**ENVIRON, "SLURM_JOB_RESTART_COUNT": "1"}, config)
        tag = comment_tag.read(slurm.job_records["12"].comment)
        assert tag is not None
        assert (tag.count, tag.limit) == (2, 3)

    def test_the_ledger_keeps_from_which_checkpoint_the_attempt_started(self, slurm: FakeSlurm, config: Config) -> None:
        slurm.set_job("12", comment="[slurm_ft] [slurm_ft.resume step=7 attempt=0 saved=1900]")
        epilog.run(ENVIRON, config)
        history = ledger.read(slurm.job_records["12"].admin_comment)
        assert history
        assert [(one.step, one.saved) for one in history.attempts] == [(7, 1900)]

    def test_a_damaged_ledger_is_followed_by_one_that_can_be_read(self, slurm: FakeSlurm, config: Config) -> None:
        slurm.set_job("12", admin_comment='slurm_ft:{"v":1,"run":"3f')
        epilog.run(ENVIRON, config)
        history = ledger.read(slurm.job_records["12"].admin_comment)
        assert history is not None
        assert history.count == 1

    def test_the_exclusions_of_earlier_attempts_stay(self, slurm: FakeSlurm, config: Config) -> None:
        admin_comment = ledger.write("", Ledger("run", (COUNTED,), ("n9",)))
        slurm.set_job("12", restarts=1, admin_comment=admin_comment)
        slurm.excluded["12"] = "n[8-9]"  # n8 is the user's own
        _judge_attempt(slurm, 1)
        epilog.run({**ENVIRON, "SLURM_JOB_RESTART_COUNT": "1"}, config)
        assert slurm.excluded["12"] == "n[1,8-9]"
        assert "ex=n9,n1 " in slurm.job_records["12"].comment

    def test_a_node_failure_that_slurm_requeued_is_recorded_and_not_requeued_again(
        self, slurm: FakeSlurm, config: Config, detached: list[Callable[[], None]]
    ) -> None:
        slurm.set_job("12", restarts=1, ended=None)
        slurm.set_node("n1", state="down", reason="Not responding")
        epilog.run({**ENVIRON, "SLURM_JOB_EXIT_CODE2": "0:0"}, config)
        assert asked(slurm) == ["update_job"]
        assert len(detached) == 1
        assert slurm.excluded["12"] == "n1"

    @pytest.mark.parametrize("restart_count", ["0", "1"])  # what the hook is told differs with who requeued
    def test_a_running_job_on_bad_hardware_that_an_admin_requeued_is_excluded_and_counted(
        self, slurm: FakeSlurm, config: Config, restart_count: str
    ) -> None:
        slurm.set_job("12", restarts=1, ended=None)
        epilog.run({**ENVIRON, "SLURM_JOB_EXIT_CODE2": "0:0", "SLURM_JOB_RESTART_COUNT": restart_count}, config)
        assert asked(slurm) == ["update_job"]
        assert "n=1/3 ex=n1" in slurm.job_records["12"].comment

    def test_a_verdict_on_a_preempted_attempt_does_not_excuse_the_next_one(
        self, slurm: FakeSlurm, config: Config
    ) -> None:
        slurm.set_job("12", restarts=1)  # the second attempt has ended; the verdict is on the first
        epilog.run({**ENVIRON, "SLURM_JOB_RESTART_COUNT": "1"}, config)
        assert asked(slurm) == []

    def test_an_attempt_that_is_decided_on_is_not_decided_on_again(self, slurm: FakeSlurm, config: Config) -> None:
        epilog.run(ENVIRON, config)
        changes = list(slurm.changes)
        slurm.set_job("12", ended=None)  # requeued, by us
        epilog.run(ENVIRON, config)
        assert slurm.changes == changes

    def test_a_node_failure_over_the_limit_is_cancelled(
        self, slurm: FakeSlurm, config: Config, detached: list[Callable[[], None]]
    ) -> None:
        slurm.set_job("12", restarts=1, ended=None, comment="[slurm_ft n=3/3]")
        slurm.set_node("n1", state="down", reason="Not responding")
        epilog.run({**ENVIRON, "SLURM_JOB_EXIT_CODE2": "0:0"}, config)
        assert asked(slurm) == ["update_job", "cancel"]
        assert detached == []

    def test_a_job_cancelled_between_look_and_act_is_not_revived(self, slurm: FakeSlurm, config: Config) -> None:
        looks = iter(["COMPLETING", "COMPLETING", "CANCELLED"])
        slurm.before["job"] = lambda: slurm.set_job("12", state=next(looks))
        epilog.run(ENVIRON, config)
        assert slurm.changes == []
        assert entries(config)["closed"]["detail"] == "not requeued: the job is CANCELLED by now"

    def test_an_array_task_is_addressed_as_one(self, slurm: FakeSlurm, config: Config) -> None:
        slurm.job_records = {"10_2": replace(slurm.job_records["12"], address="10_2")}
        epilog.run({**ENVIRON, "SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "2"}, config)
        assert {call[1] for call in slurm.changes} == {"10_2"}
        assert slurm.job_records["10_2"].restarts == 1

    def test_a_forgotten_job_is_no_error(self, slurm: FakeSlurm, config: Config) -> None:
        slurm.job_records.clear()
        assert epilog.run(ENVIRON, config) == 0
        assert entries(config) == {}

    def test_hostile_text_reaches_the_journal_as_one_line(
        self, slurm: FakeSlurm, config: Config, fault: NodeVerdict
    ) -> None:
        slurm.set_job("12", comment='a\n"b"\udcff\x1b[2J [slurm_ft]')
        epilog.run(ENVIRON, config)
        lines = (config.state_dir / journal.FILE_NAME).read_text("ascii").splitlines()
        assert [json.loads(line)["what"] for line in lines] == ["seen", "decided", "requeued", "recorded"]
        assert slurm.job_records["12"].comment.startswith('a\n"b"\udcff\x1b[2J [slurm_ft n=1/3')

    def test_slurm_not_answering_is_raised_for_the_caller_to_fail_open(self, slurm: FakeSlurm, config: Config) -> None:
        slurm.refused.add("job")
        with pytest.raises(SlurmCommandError):
            epilog.run(ENVIRON, config)

    def test_a_release_without_an_answer_is_logged(
        self, slurm: FakeSlurm, config: Config, detached: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        epilog.run(ENVIRON, config)
        slurm.refused.add("job")
        monkeypatch.setattr(carry_out, "FINISH_TIMEOUT", 0.01)
        detached[0]()
        assert "Unable to contact" in entries(config)["failed"]["detail"]

    @pytest.mark.parametrize("wrong", [{"SLURM_JOB_ID": "x"}, {"SLURM_JOB_ID": ""}, {"SLURM_JOB_EXIT_CODE2": "one"}])
    def test_a_start_by_hand_says_what_is_missing(
        self, slurm: FakeSlurm, config: Config, wrong: dict[str, str]
    ) -> None:
        with pytest.raises(HookEnvironmentError, match=next(iter(wrong))):
            epilog.run({**ENVIRON, **wrong}, config)


def _judge_attempt(slurm: FakeSlurm, attempt: int) -> None:
    (verdict,) = node_record.read(slurm.node_records["n1"].reason, "n1")
    slurm.set_node("n1", reason=node_record.add("", replace(verdict, attempt=attempt)))


class TestProlog:
    ENVIRON = {"SLURM_JOB_ID": "12", "SLURM_JOB_RESTART_COUNT": "2"}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _starts_again(self, slurm: FakeSlurm) -> None:
        slurm.set_job("12", state="CONFIGURING", restarts=2, ended=None)

    def test_an_unannounced_restart_is_recorded_and_not_counted(self, slurm: FakeSlurm, config: Config) -> None:
        slurm.set_job("12", admin_comment=ledger.write("of a tool", Ledger("run", (COUNTED,), ("n9",))))
        assert prolog.run(self.ENVIRON, config) == 0
        admin_comment = slurm.job_records["12"].admin_comment
        history = ledger.read(admin_comment)
        assert history is not None
        assert [(attempt.number, attempt.counted) for attempt in history.attempts] == [(0, True), (1, False)]
        assert (history.run_id, history.excluded, history.count) == ("run", ("n9",), 1)
        assert admin_comment.startswith("of a tool ")

    def test_an_announced_restart_needs_nothing(self, slurm: FakeSlurm, config: Config) -> None:
        known = Ledger("run", (replace(COUNTED, number=1),), ())
        slurm.set_job("12", admin_comment=ledger.write("", known))
        prolog.run(self.ENVIRON, config)
        assert slurm.changes == []

    def test_a_job_without_a_ledger_gets_one(self, slurm: FakeSlurm, config: Config) -> None:
        prolog.run(self.ENVIRON, config)
        history = ledger.read(slurm.job_records["12"].admin_comment)
        assert history is not None
        assert [attempt.number for attempt in history.attempts] == [1]

    def test_a_first_start_needs_nothing(self, slurm: FakeSlurm, config: Config) -> None:
        prolog.run({**self.ENVIRON, "SLURM_JOB_RESTART_COUNT": "0"}, config)
        assert slurm.changes == []

    def test_observe_changes_nothing(self, slurm: FakeSlurm, config: Config) -> None:
        prolog.run(self.ENVIRON, replace(config, mode=Mode.OBSERVE))
        assert slurm.calls == []

    def test_a_forgotten_job_is_no_error(self, slurm: FakeSlurm, config: Config) -> None:
        slurm.job_records.clear()
        assert prolog.run(self.ENVIRON, config) == 0

    def test_a_restart_that_no_hook_saw_is_counted_when_a_node_blames_itself_for_it(
        self, slurm: FakeSlurm, config: Config
    ) -> None:
        slurm.set_job("12", restarts=1)
        prolog.run({**self.ENVIRON, "SLURM_JOB_RESTART_COUNT": "1"}, config)
        history = ledger.read(slurm.job_records["12"].admin_comment)
        assert history is not None
        assert (history.count, history.excluded) == (1, ("n1",))


class TestPrologAfterAKilledEpilog:
    @pytest.fixture(autouse=True)
    def _killed(self, slurm: FakeSlurm, config: Config) -> None:
        slurm.refused.add("update_job")  # stands for the kill between the requeue and the update
        epilog.run(ENVIRON, config)
        slurm.refused.clear()

    def test_a_decision_whose_hook_was_killed_before_it_was_recorded_is_counted(
        self, slurm: FakeSlurm, config: Config
    ) -> None:
        slurm.set_job("12", state="CONFIGURING", submitted=time.time())
        prolog.run(RESTARTED, config)
        job = slurm.job_records["12"]
        assert job.comment == "team=vision [slurm_ft n=1/3 ex=n1 cause=xid79]"
        history = ledger.read(job.admin_comment)
        assert history is not None
        assert (history.count, history.excluded, history.attempts[0].cause) == (1, ("n1",), "xid79")

    def test_a_decision_on_an_earlier_job_of_the_same_id_is_not_inherited(
        self, slurm: FakeSlurm, config: Config
    ) -> None:
        slurm.set_node("n1", state="idle", reason="")
        slurm.set_job("12", state="CONFIGURING", submitted=time.time() + 86400)
        prolog.run(RESTARTED, config)
        history = ledger.read(slurm.job_records["12"].admin_comment)
        assert history is not None
        assert (history.count, history.excluded) == (0, ())


class TestAlerts:
    @pytest.fixture
    def spooled(self, config: Config, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Alert]]:
        monkeypatch.setattr(spooling, "start_sender", lambda _: None)
        return lambda: list(spool.read(spool.paths(config.state_dir)))

    @pytest.fixture
    def alerting(self, config: Config) -> Config:
        return replace(
            config, alert_channels=(Channel("am", Service.ALERTMANAGER, Secret(plain="http://localhost:1")),)
        )

    def test_the_last_failover_is_told_with_what_is_known_of_the_job(
        self, alerting: Config, slurm: FakeSlurm, spooled: Callable[[], list[Alert]]
    ) -> None:
        slurm.set_job("12", comment="[slurm_ft n=3/3] [slurm_ft.resume step=7 attempt=0]")
        epilog.run(ENVIRON, alerting)
        (one,) = spooled()
        assert (one.kind, one.job, one.user, one.job_name) == (Kind.LIMIT_REACHED, "12", "alice", "train")
        assert (one.count, one.checkpoint) == ("3 of 3 failovers spent", "step 7")
        assert one.line.startswith("NVRM: Xid")

    def test_what_the_job_says_of_its_start_is_told(
        self, alerting: Config, slurm: FakeSlurm, spooled: Callable[[], list[Alert]]
    ) -> None:
        slurm.set_job("12", comment="[slurm_ft] [slurm_ft.resume step=7 attempt=0 alert=restarted_from_zero]")
        epilog.run(ENVIRON, alerting)
        assert [one.kind for one in spooled()] == [Kind.NOT_RESUMED]

    def test_a_full_spool_stops_no_failover(self, alerting: Config, slurm: FakeSlurm) -> None:
        (alerting.state_dir / "alerts").write_text("no directory")
        slurm.set_job("12", comment="[slurm_ft] [slurm_ft.resume step=7 attempt=0 alert=same_step]")
        epilog.run(ENVIRON, alerting)
        assert "requeue" in asked(slurm)

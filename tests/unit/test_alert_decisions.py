"""Which decisions people are told of: repeated restarts, the limit, what nobody knows; and what the job says itself."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft import config as configuration
from slurm_ft import journal
from slurm_ft.alert import FIELD_LIMIT, Alert, Kind, Severity, from_json, to_json
from slurm_ft.alert_channels import Channel, Secret, Service
from slurm_ft.alerts import decisions, message, outbox, sender, spool
from slurm_ft.alerts.decisions import Job
from slurm_ft.alerts.outbox import Outbox
from slurm_ft.cli.main import main
from slurm_ft.config import Config, Mode
from slurm_ft.controller.site import Site
from slurm_ft.errors import ConfigError
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Action, Decision, Domain, JobEnd, JobKey, JobState, NodeVerdict

JOB = Job("train", "alice", "n[1-2]", "step 7")
REQUEUED = Decision(
    Action.REQUEUE,
    JobState.FAILOVER_IN_PROGRESS,
    Domain.HARDWARE,
    "xid79",
    1,
    9,
    "hardware_fault",
    "why",
    ("n1",),
    "line",
)
CHANNEL = "alert_channels: [{name: am, type: alertmanager, url: 'http://localhost:1'}]"


def entry(attempt: int, at: float, decision: Decision = REQUEUED, run: str = "r1") -> Entry:
    return Entry(at, Stage.DECIDED, JobKey(12, "12", attempt), "c1", run, mode="act", nodes="n1", decision=decision)


def kinds(last: Entry, *before: Entry) -> list[Kind]:
    return [one.kind for one in decisions.about(last, before, JOB, Config())]


class TestRepeatedRestarts:
    def test_three_within_an_hour_are_told(self) -> None:
        assert kinds(entry(1, 2000), entry(0, 1000)) == []
        assert kinds(entry(2, 3000), entry(0, 1000), entry(1, 2000)) == [Kind.REPEATED_RESTARTS]

    def test_a_quiet_time_starts_the_count_anew(self) -> None:
        assert kinds(entry(2, 6000), entry(0, 1000), entry(1, 2000)) == []

    def test_a_success_starts_the_count_anew(self) -> None:
        assert kinds(entry(2, 3000), entry(0, 1000, run="r0"), entry(1, 2000, run="r0")) == []

    def test_an_entry_that_is_in_the_journal_already_counts_once(self) -> None:
        assert kinds(entry(1, 2000), entry(0, 1000), entry(1, 2000)) == []

    def test_it_says_what_happens_next(self) -> None:
        (one,) = decisions.about(entry(2, 3000), [entry(0, 1000), entry(1, 2000)], JOB, Config())
        assert one.what == "job 12: 3 restarts within 60 minutes, the last for xid79"
        assert (one.following, one.checkpoint) == ("the job starts again without n1", "step 7")
        assert one.command == "slurm-ft explain 12"


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("limit_reached", Kind.LIMIT_REACHED),
        ("all_nodes_blamed", Kind.UNKNOWN_VERDICT),
        ("epilog_silent", Kind.UNKNOWN_VERDICT),
        ("no_hardware_signal", Kind.INTERNAL_ERROR),
    ],
)
def test_a_rule_that_leaves_a_job_dead_is_told(rule: str, kind: Kind) -> None:
    refused = replace(REQUEUED, action=Action.NONE, state=JobState.INTERNAL_ERROR, rule=rule)
    assert kinds(entry(0, 1.0, refused)) == [kind]


def test_the_rules_that_are_told_exist(job_end: JobEnd, fault: NodeVerdict) -> None:
    from slurm_ft.failover.policy import decide  # noqa: PLC0415

    ends = [
        decide(job_end, [fault], 3),
        decide(job_end, [], 0),
        decide(replace(job_end, silent_nodes=("n2",)), [], 0),
        decide(job_end, [fault, replace(fault, node="n2")], 0),
        decide(replace(job_end, requeueable=False), [fault], 0),
    ]
    assert {one.rule for one in ends} == set(decisions.RULES) - {"held_back", "no_progress"}


def test_a_job_that_did_not_ask_for_failover_is_told_of_to_nobody() -> None:
    assert kinds(entry(0, 1.0, replace(REQUEUED, action=Action.NONE, rule="not_opted_in"))) == []


def test_the_jobs_own_words_are_told_and_no_others() -> None:
    key = JobKey(12, "12", 3)
    one = decisions.about_mark("restarted_from_zero", key, JOB, 1.0)
    assert one is not None
    assert (one.kind, one.subject, one.user) == (Kind.NOT_RESUMED, "job 12 restart 3", "alice")
    assert decisions.about_mark("anything_else", key, JOB, 1.0) is None


class TestWhatAUserControls:
    def test_is_one_bounded_line(self) -> None:
        nasty = Alert(Kind.TEST, "what\r\nBcc: all@x.org\x1b[2J" + "x" * 9999, 1.0, "s")
        back = from_json(to_json(nasty))
        assert back is not None
        assert back.what.startswith("what Bcc: all@x.org [2Jxxx")
        assert len(back.what) == FIELD_LIMIT

    @pytest.mark.parametrize("name", ["@here", "<!channel>", "<@U123>", "[safe](http://evil)"])
    def test_calls_nobody(self, name: str) -> None:
        alert = Alert(Kind.TEST, "x", 1.0, "s", job="12", job_name=name)
        assert name not in message.body(alert)
        assert name in message.body(alert).replace("\u200b", "")


class TestOutbox:
    CONFIG = configuration.parse(CHANNEL)

    def alert(self, number: int = 0) -> Alert:
        return Alert(Kind.LIMIT_REACHED, f"what {number}", 1.0, f"s{number}")

    def test_after_the_cool_down_it_is_told_again_with_the_number_of_those_between(self) -> None:
        at = Outbox()
        for now in (0.0, 10.0, 20.0, 4000.0):
            at = outbox.admit(at, [self.alert()], self.CONFIG, now)
        assert [one.untold for one in at.waiting] == [0, 2]

    def test_a_failing_message_is_tried_less_and_less_often_and_then_given_up(self) -> None:
        at, now, pauses = outbox.admit(Outbox(), [self.alert()], self.CONFIG, 0.0), 0.0, []
        while at.waiting:
            (one,) = at.waiting
            pauses.append(one.next_try - now)
            now = one.next_try
            at = outbox.delivered(at, one, "dead", now)
        assert pauses[:4] == [0.0, 30.0, 60.0, 120.0]
        assert (max(pauses), len(pauses)) == (3600.0, outbox.MOST_TRIES)
        assert at.recent[0].error == "given up after 12 tries: dead"

    def test_digests_grow_until_they_are_told(self) -> None:
        at = Outbox()
        for start in (0, 100):
            at = outbox.admit(at, [self.alert(start + n) for n in range(100)], self.CONFIG, 10.0 + start / 100)
        (digest,) = [one for one in at.waiting if one.alert.kind is Kind.DIGEST]
        assert (len(at.waiting), digest.untold) == (21, 180)

    def test_a_channel_that_is_gone_keeps_nothing(self) -> None:
        at = outbox.admit(Outbox(), [self.alert()], self.CONFIG, 0.0)
        assert outbox.without_channels(at, Config()).waiting == ()


@pytest.mark.parametrize(
    ("channel", "said"),
    [
        ("{name: a, type: fax, url: 'http://x'}", "'fax' is not one of: apprise, alertmanager, datadog"),
        ("{name: a, type: apprise, url: 'slack://SECRET'}", "apprise's URLs hold secrets"),
        ("{name: a, type: alertmanager, url: 'http://u:SECRET@x'}", "it holds a secret"),
        ("{name: a, type: alertmanager, url_file: x}", "expected an absolute path"),
        ("{name: a, type: alertmanager}", "exactly one of url_file, url_env and url"),
        ("{name: a, type: datadog, url: 'http://x'}", "takes one of key_file and key_env"),
        (
            "{name: a, type: alertmanager, url: 'http://x', kinds: [nothing]}",
            "'nothing' is not one of: repeated_restarts",
        ),
        ("{name: a, type: alertmanager, url: 'http://x', severity: loud}", "'loud' is not one of: info"),
        ("{name: a, type: alertmanager, url: 'http://x', token: SECRET}", "unknown key token"),
        ("{type: alertmanager}", "channel 1: expected a mapping with a name"),
    ],
)
def test_a_wrong_channel_is_named_without_its_secret(channel: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        configuration.parse(f"alert_channels:\n  - {channel}\n")
    assert said in str(error.value)
    assert "SECRET" not in str(error.value)


def test_severities_have_an_order() -> None:
    assert Severity.INFO.rank < Severity.WARNING.rank < Severity.CRITICAL.rank


def test_a_node_that_keeps_failing_is_told_once_per_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = replace(REQUEUED, exclude=("n1",))
    for attempt, at in ((0, time.time() - 86400), (1, time.time() - 60)):
        journal.append(tmp_path, entry(attempt, at, again))
    slurm = FakeSlurm(node_records={"n1": node("n1"), "n2": node("n2")})
    channel = Channel("am", Service.ALERTMANAGER, Secret(plain="http://localhost:1"))
    config = Config(mode=Mode.ACT, state_dir=tmp_path, log_file=tmp_path / "log", alert_channels=(channel,))
    sent: list[Alert] = []
    monkeypatch.setattr(configuration, "load", lambda: config)
    monkeypatch.setattr(Site, "of", lambda *_: Site(config, slurm, logging.getLogger("none"), "c1"))
    monkeypatch.setattr(sender, "send", lambda *_: sent.extend(spool.read(spool.paths(tmp_path))))
    assert main(["reconcile"]) == 0
    (one,) = [alert for alert in sent if alert.kind is Kind.LEMON_NODE]
    assert one.what == "node n1 keeps failing: 2 faults in 7 days, 1 jobs hit"
    assert one.subject == "node n1 fault 12.1"

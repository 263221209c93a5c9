"""Alerts from a hook's log to real servers: Alertmanager, SMTP, HTTP endpoints. Nothing secret is ever told."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from alert_receivers import Endpoint, alertmanager, alerts_of, endpoint, free_port

from slurm_ft import config as configuration
from slurm_ft.alert import Alert, Kind, alert
from slurm_ft.alerts import outbox_file, sender, spool, spooling
from slurm_ft.alerts.deliver import prepare
from slurm_ft.alerts.secret import ChannelError
from slurm_ft.cli.main import main
from slurm_ft.config import Config
from slurm_ft.log import open_log

# apprise, when it is imported, on Python 3.11 and 3.12
pytestmark = pytest.mark.filterwarnings("ignore:'(imghdr|cgi|crypt)' is deprecated:DeprecationWarning")
SECRET = "T0KEN-very-secret"
FULL = Alert(
    kind=Kind.LIMIT_REACHED,
    what="job 12: xid79 on n1, and all 3 failovers are spent",
    at=1_764_429_940.0,
    subject="job 12 run ab",
    cluster="c1",
    job="12",
    job_name="train",
    user="alice",
    count="3 of 3 failovers spent",
    nodes="n[1-2]",
    cause="xid79 (hardware)",
    line="NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    checkpoint="step 1200",
    following="the job is not started again",
    command="slurm-ft explain 12",
)


@pytest.fixture(autouse=True)
def _no_sender_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "start_sender", lambda _: None)


@pytest.fixture
def http() -> Iterator[Endpoint]:
    with endpoint() as it:
        yield it


def site(tmp_path: Path, *channels: dict[str, Any], **settings: Any) -> Config:
    import yaml  # noqa: PLC0415

    text = {"state_dir": str(tmp_path / "state"), "log_file": str(tmp_path / "log"), "alert_channels": list(channels)}
    path = tmp_path / "slurm_ft.yaml"
    path.write_text(yaml.safe_dump({**text, **settings}))
    return configuration.parse(path.read_text())


def secret_file(tmp_path: Path, text: str, name: str = "secret") -> str:
    path = tmp_path / name
    path.write_text(text + "\n")
    path.chmod(0o600)
    return str(path)


def webhook(tmp_path: Path, http: Endpoint, name: str = "hook") -> dict[str, Any]:
    url = f"json://user:{SECRET}@127.0.0.1:{http.port}/{SECRET}/in?rto=2&cto=2"
    return {"name": name, "type": "apprise", "url_file": secret_file(tmp_path, url, name)}


def tell(config: Config, *alerts: Alert) -> logging.Logger:
    log = open_log(config, "test_alerts")
    for one in alerts:
        alert(log, one.what, one)
    return log


def other(number: int, kind: Kind = Kind.LIMIT_REACHED) -> Alert:
    return Alert(kind, f"job {number}: something", 1_764_429_940.0 + number, subject=f"job {number}")


class TestAlertmanager:
    def test_a_real_one_takes_the_alert_and_groups_the_next_with_it(self, tmp_path: Path) -> None:
        with alertmanager(tmp_path) as url:
            config = site(tmp_path, {"name": "am", "type": "alertmanager", "url": url}, alert_cool_down=0)
            for _ in range(2):
                assert sender.send(config, tell(config, FULL)).delivered == 1
            (found,) = alerts_of(url)
        assert found["labels"] == {
            "alertname": "SlurmFtLimitReached",
            "severity": "critical",
            "cluster": "c1",
            "subject": "job 12 run ab",
            "slurm_job": "12",
            "user": "alice",
        }
        assert "last checkpoint: step 1200" in found["annotations"]["description"]
        assert found["status"]["state"] == "active"

    def test_what_it_refuses_is_told_with_its_words(self, tmp_path: Path, http: Endpoint) -> None:
        http.answers[:] = [400]
        config = site(tmp_path, {"name": "am", "type": "alertmanager", "url": http.url})
        assert sender.send(config, tell(config, FULL)).failed == 1
        assert "am: it answered 400" in (tmp_path / "log").read_text()

    def test_a_redirect_is_not_followed(self, tmp_path: Path, http: Endpoint) -> None:
        with endpoint(answers=[302], location=http.url) as first:
            config = site(tmp_path, {"name": "am", "type": "alertmanager", "url": first.url})
            assert sender.send(config, tell(config, FULL)).failed == 1
        assert http.got == []


class Mailbox:
    def __init__(self) -> None:
        self.mails: list[Any] = []

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802
        self.mails.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 OK"


class TestMail:
    def test_a_real_smtp_server_gets_all_that_is_known(self, tmp_path: Path) -> None:
        box = Mailbox()
        server = Controller(box, hostname="127.0.0.1", port=free_port())
        server.start()
        try:
            url = f"mailto://127.0.0.1:{server.port}/?smtp=127.0.0.1&mode=insecure&from=ft@x.org&to=ops@x.org"
            config = site(tmp_path, {"name": "mail", "type": "apprise", "url_file": secret_file(tmp_path, url)})
            assert sender.send(config, tell(config, FULL)).delivered == 1
        finally:
            server.stop()
        (mail,) = box.mails
        assert mail["Subject"].startswith("[critical] slurm_ft: job 12: xid79 on n1")
        text = mail.get_body(("plain",)).get_content()
        for part in (
            "job: 12 train",
            "user: alice",
            "count: 3 of 3 failovers spent",
            "when: 2025-11-29 15:25:40 UTC",
            "nodes: n[1-2]",
            "cause: xid79 (hardware)",
            "log line: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
            "last checkpoint: step 1200",
            "what happens next: the job is not started again",
            "look closer: slurm-ft explain 12",
        ):
            assert part in text


class TestDatadog:
    def test_an_event_carries_the_key_in_its_header_alone(self, tmp_path: Path, http: Endpoint) -> None:
        channel = {"name": "dd", "type": "datadog", "url": http.url, "key_file": secret_file(tmp_path, SECRET)}
        config = site(tmp_path, channel)
        assert sender.send(config, tell(config, FULL)).delivered == 1
        ((path, headers, event),) = http.got
        assert path == "/api/v1/events"
        assert {name.lower(): value for name, value in headers.items()}["dd-api-key"] == SECRET
        assert SECRET not in str(event)
        assert event["alert_type"] == "error"
        assert len(event["title"]) <= 100
        assert "job:12" in event["tags"]


class TestRouting:
    def test_each_channel_gets_what_is_urgent_enough_and_of_its_kinds(self, tmp_path: Path, http: Endpoint) -> None:
        urgent = {**webhook(tmp_path, http, "urgent"), "severity": "critical"}
        blocked = {**webhook(tmp_path, http, "lemons"), "kinds": ["lemon_node"]}
        config = site(tmp_path, urgent, blocked)
        done = sender.send(config, tell(config, FULL, other(1, Kind.LEMON_NODE), other(2, Kind.INTERNAL_ERROR)))
        assert done.delivered == 2
        assert {one.channel: one.kind for one in outbox_file.load(config.state_dir).recent} == {
            "urgent": "limit_reached",
            "lemons": "lemon_node",
        }

    def test_within_the_cool_down_the_same_is_told_once(self, tmp_path: Path, http: Endpoint) -> None:
        config = site(tmp_path, webhook(tmp_path, http))
        for _ in range(3):
            sender.send(config, tell(config, FULL))
        assert len(http.got) == 1
        assert outbox_file.load(config.state_dir).told[FULL.key].again == 2

    def test_a_flood_of_the_same_is_one_message(self, tmp_path: Path, http: Endpoint) -> None:
        config = site(tmp_path, webhook(tmp_path, http))
        log = tell(config, *[FULL] * 1000)
        assert len(spool.paths(config.state_dir)) == 1
        sender.send(config, log)
        assert len(http.got) == 1

    def test_a_flood_of_different_ones_is_twenty_and_a_digest(self, tmp_path: Path, http: Endpoint) -> None:
        config = site(tmp_path, webhook(tmp_path, http))
        sender.send(config, tell(config, *(other(number) for number in range(1000))))
        assert len(http.got) == 20
        (digest,) = outbox_file.load(config.state_dir).waiting
        assert digest.alert.what == "980 more alerts, too many to tell one by one"


class TestTrouble:
    def test_a_full_spool_refuses_more_and_the_hook_goes_on(self, tmp_path: Path, http: Endpoint) -> None:
        config = site(tmp_path, webhook(tmp_path, http))
        tell(config, *(other(number) for number in range(spool.MOST + 5)))
        assert len(spool.paths(config.state_dir)) == spool.MOST
        assert "1000 alerts wait already" in (tmp_path / "log").read_text()

    def test_a_spool_that_cannot_be_written_costs_the_alert_alone(self, tmp_path: Path, http: Endpoint) -> None:
        (tmp_path / "state").write_text("a file where the directory should be")
        tell(site(tmp_path, webhook(tmp_path, http)), FULL)
        assert "ALERT: job 12" in (tmp_path / "log").read_text()
        assert "goes nowhere but here" in (tmp_path / "log").read_text()

    def test_a_dead_channel_is_tried_again_and_keeps_no_other_waiting(self, tmp_path: Path, http: Endpoint) -> None:
        dead = {"name": "dead", "type": "alertmanager", "url": f"http://127.0.0.1:{free_port()}"}
        config = site(tmp_path, dead, webhook(tmp_path, http))
        done = sender.send(config, tell(config, FULL))
        assert (done.delivered, done.failed) == (1, 1)
        (left,) = outbox_file.load(config.state_dir).waiting
        assert (left.channel, left.tries) == ("dead", 1)

    def test_a_channel_that_never_answers_is_left_behind(
        self, tmp_path: Path, http: Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sender, "PASS_LIMIT", 1.0)
        hangs = threading.Event()
        with endpoint(pause=hangs) as slow:
            config = site(tmp_path, {"name": "slow", "type": "alertmanager", "url": slow.url}, webhook(tmp_path, http))
            done = sender.send(config, tell(config, FULL))
            hangs.set()
        assert (done.delivered, done.failed) == (1, 1)
        assert len(http.got) == 1
        assert "slow: too slow" in (tmp_path / "log").read_text()

    def test_of_two_senders_at_once_one_sends(self, tmp_path: Path) -> None:
        hangs = threading.Event()
        with endpoint(pause=hangs) as slow:
            config = site(tmp_path, {"name": "am", "type": "alertmanager", "url": slow.url})
            log = tell(config, FULL)
            first = threading.Thread(target=sender.send, args=(config, log))
            first.start()
            while not slow.got:
                assert first.is_alive()
            assert sender.send(config, log).busy
            tell(config, other(1))  # while the first one is at work: it looks again
            hangs.set()
            first.join()
            assert len(slow.got) == 2
        assert spool.paths(config.state_dir) == []

    def test_a_torn_file_in_the_spool_is_passed_over(self, tmp_path: Path, http: Endpoint) -> None:
        config = site(tmp_path, webhook(tmp_path, http))
        log = tell(config, FULL)
        (spool.paths(config.state_dir)[0].parent / "torn.json").write_text('{"kind": "lim')
        assert sender.send(config, log).delivered == 1
        assert spool.paths(config.state_dir) == []


class TestSecrets:
    @pytest.mark.parametrize("answer", [200, 403, 500])
    def test_they_are_in_no_log_no_output_and_no_file(
        self, tmp_path: Path, http: Endpoint, answer: int, capfd: pytest.CaptureFixture[str], caplog: Any
    ) -> None:
        http.answers[:] = [answer]
        dead = f"json://user:{SECRET}@127.0.0.1:{free_port()}/{SECRET}?rto=2&cto=2"
        odd = f"nosuchscheme://{SECRET}/{SECRET}"
        config = site(
            tmp_path,
            webhook(tmp_path, http),
            {"name": "dead", "type": "apprise", "url_file": secret_file(tmp_path, dead, "dead")},
            {"name": "odd", "type": "apprise", "url_file": secret_file(tmp_path, odd, "odd")},
            {"name": "dd", "type": "datadog", "url": http.url, "key_file": secret_file(tmp_path, SECRET, "key")},
            {"name": "am", "type": "alertmanager", "url_file": secret_file(tmp_path, f"http://u:{SECRET}@x:1", "am")},
        )
        sender.send(config, tell(config, FULL))
        os.environ["SLURM_FT_CONFIG"] = str(tmp_path / "slurm_ft.yaml")
        try:
            main(["alert", "test"])
            main(["alert", "list"])
        finally:
            del os.environ["SLURM_FT_CONFIG"]
        written = [path.read_text() for path in (tmp_path / "state").rglob("*") if path.is_file()]
        said = "".join([*capfd.readouterr(), caplog.text, (tmp_path / "log").read_text(), *written])
        assert "odd: apprise does not understand its URL" in said
        assert SECRET not in said
        assert "very-secret" not in said

    def test_a_file_that_others_can_read_is_refused(self, tmp_path: Path, http: Endpoint) -> None:
        channel = webhook(tmp_path, http)
        Path(channel["url_file"]).chmod(0o644)
        config = site(tmp_path, channel)
        assert sender.send(config, tell(config, FULL)).failed == 1
        assert "others can read it. chmod 600" in (tmp_path / "log").read_text()

    def test_the_spool_is_nobody_elses_to_read(self, tmp_path: Path, http: Endpoint) -> None:
        config = site(tmp_path, webhook(tmp_path, http))
        sender.send(config, tell(config, FULL))
        tell(config, other(1))
        modes = {path: path.stat().st_mode & 0o007 for path in (config.state_dir / "alerts").rglob("*")}
        assert len(modes) >= 4
        assert set(modes.values()) == {0}


class TestResidency:
    @pytest.mark.parametrize(
        ("more", "allowed"),
        [
            ({}, False),
            ({"no_proxy": "127.0.0.1"}, True),
            ({"alert_destinations": ["proxy.example.org"]}, True),
        ],
    )
    def test_a_proxy_is_a_destination_too(
        self, tmp_path: Path, http: Endpoint, more: dict[str, Any], allowed: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("http_proxy", "http://proxy.example.org:3128")
        if "no_proxy" in more:
            monkeypatch.setenv("no_proxy", more["no_proxy"])
        settings = {key: value for key, value in more.items() if key != "no_proxy"}
        channel = {"name": "am", "type": "alertmanager", "url": http.url}
        config = site(tmp_path, channel, residency="strict", **settings)
        (one,) = config.alert_channels
        if not allowed:
            with pytest.raises(ChannelError, match=r"refused: proxy\.example\.org: residency is strict"):
                prepare(one, config)
        else:
            assert "127.0.0.1" in prepare(one, config).hosts

    @pytest.mark.parametrize(
        ("url", "destinations", "allowed"),
        [
            ("json://127.0.0.1:1/x", [], True),
            ("json://hooks.example.com/x", [], False),
            ("json://hooks.example.com/x", ["hooks.example.com"], True),
            ("json://hooks.example.com/x", [".example.com"], True),
            ("json://hooks.example.com.evil.org/x", [".example.com", "hooks.example.com"], False),
            ("json://10.1.2.3/x", ["10.0.0.0/8"], True),
            ("json://11.1.2.3/x", ["10.0.0.0/8"], False),
            ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/", ["hooks.slack.com"], False),
            ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/", ["slack://"], True),
            ("mailto://u:p@mx.site.org/?to=a@site.org", ["mx.site.org", "site.org"], True),
            ("mailto://u:p@mx.site.org/?to=a@gmail.com", ["mx.site.org", "site.org"], False),
            ("mailto://u:p@mx.site.org/?to=a@site.org&cc=b@gmail.com", ["mx.site.org", "site.org"], False),
        ],
    )
    def test_strict_lets_alerts_go_only_where_the_site_says(
        self, tmp_path: Path, url: str, destinations: list[str], allowed: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from slurm_ft.alerts import apprise_service  # noqa: PLC0415

        sent: list[str] = []
        monkeypatch.setattr(apprise_service, "send", lambda to, *_: sent.append(to))
        channel = {"name": "it", "type": "apprise", "url_file": secret_file(tmp_path, url)}
        config = site(tmp_path, channel, residency="strict", alert_destinations=destinations)
        sender.send(config, tell(config, FULL))
        assert bool(sent) is allowed
        assert ("residency is strict" in (tmp_path / "log").read_text()) is not allowed


class TestCommand:
    @pytest.fixture(autouse=True)
    def _named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLURM_FT_CONFIG", str(tmp_path / "slurm_ft.yaml"))

    def test_a_test_says_how_each_channel_fared(
        self, tmp_path: Path, http: Endpoint, capsys: pytest.CaptureFixture[str]
    ) -> None:
        dead = {"name": "dead", "type": "alertmanager", "url": f"http://127.0.0.1:{free_port()}"}
        site(tmp_path, webhook(tmp_path, http), dead)
        assert main(["alert", "test"]) == 1
        good, bad = capsys.readouterr().out.splitlines()
        assert good == "ok    hook: taken (apprise, from info on)"
        assert bad.startswith("fail  dead: no answer: ")
        assert main(["alert", "test", "--channel", "hook"]) == 0

    def test_what_waits_and_what_was_sent_is_listed(
        self, tmp_path: Path, http: Endpoint, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = site(tmp_path, webhook(tmp_path, http))
        tell(config, FULL)
        assert main(["alert", "list"]) == 0
        assert "spooled" in capsys.readouterr().out
        assert main(["alert", "send"]) == 0
        assert main(["alert", "list"]) == 0
        assert "delivered  hook  limit_reached: job 12" in capsys.readouterr().out

    def test_a_hook_starts_a_sender_that_outlives_it(self, tmp_path: Path, http: Endpoint) -> None:
        site(tmp_path, webhook(tmp_path, http))
        program = (
            "from slurm_ft import config\nfrom slurm_ft.alert import alert\nfrom slurm_ft.log import open_log\n"
            "alert(open_log(config.load(), 'hook'), 'job 12 needs a look')\n"
        )
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
        waited = threading.Event()
        for _ in range(600):
            if http.got:
                break
            waited.wait(0.1)
        assert "job 12 needs a look" in str(http.got)

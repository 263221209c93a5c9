"""The metrics as promtool and Prometheus' own parser read them."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node, refused
from prometheus_client.parser import text_string_to_metric_families as parsed

from slurm_ft import config as configuration
from slurm_ft import journal
from slurm_ft.cli.main import main
from slurm_ft.config import Config
from slurm_ft.failover import brake
from slurm_ft.failover.brake import Brake, Kind
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Action, Decision, Domain, JobKey, JobState
from slurm_ft.slurm.cli import CommandLine

CONTRIB = Path(__file__).parents[2] / "contrib"
PROMTOOL = "/usr/bin/promtool"  # tools/setup.sh installs Debian's package prometheus
FAILOVER = Decision(
    Action.REQUEUE, JobState.FAILOVER_IN_PROGRESS, Domain.HARDWARE, "xid79", 1, 3, "hardware_fault", "", ("n1",)
)
REFUSAL = replace(FAILOVER, action=Action.NONE, domain=Domain.UNKNOWN, cause="exit1:0", rule="no_hardware_signal")


def promtool(*arguments: str, text: str = "") -> None:
    done = subprocess.run([PROMTOOL, *arguments], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    paused = brake.write("", Brake(Kind.PAUSED, 1.0, "root"))
    nodes = {"n1": node("n1", "idle+drain", "slurm_ft: hardware xid79"), "n2": node("n2", comment=paused)}
    fake = FakeSlurm(node_records=nodes)
    monkeypatch.setattr(CommandLine, "of", lambda _: fake)
    monkeypatch.setattr(configuration, "load", lambda: Config(state_dir=tmp_path))
    return fake


def write(directory: Path, attempt: int, decision: Decision, *stages: tuple[Stage, float]) -> None:
    for stage, at in stages:
        held = decision if stage is Stage.DECIDED else None
        journal.append(directory, Entry(at, stage, JobKey(12, "12", attempt), "c1", "r1", decision=held))


def samples(text: str) -> dict[str, float]:
    lines = (sample for family in parsed(text) for sample in family.samples)
    return {
        f"{one.name}{{{','.join(f'{name}={value}' for name, value in sorted(one.labels.items()))}}}": one.value
        for one in lines
    }


def test_they_say_what_the_journal_and_the_nodes_say(
    tmp_path: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, 0, FAILOVER, (Stage.SEEN, 100.0), (Stage.DECIDED, 100.4), (Stage.RELEASED, 101.5))
    write(tmp_path, 1, FAILOVER, (Stage.SEEN, 200.0), (Stage.DECIDED, 203.0), (Stage.RELEASED, 210.0))
    write(tmp_path, 2, REFUSAL, (Stage.SEEN, 300.0), (Stage.DECIDED, 300.1))
    assert main(["metrics"]) == 0
    text = capsys.readouterr().out
    promtool("check", "metrics", text=text)
    found = samples(text)
    assert found["slurm_ft_failovers_total{cause=xid79}"] == 2
    assert found["slurm_ft_decisions_total{action=none,domain=unknown,rule=no_hardware_signal}"] == 1
    assert found["slurm_ft_decision_seconds_count{}"] == 3
    assert found["slurm_ft_decision_seconds_bucket{le=0.5}"] == 2
    assert found["slurm_ft_restart_seconds_sum{}"] == pytest.approx(11.5)
    assert found["slurm_ft_brake{kind=paused}"] == 1
    assert found["slurm_ft_brake{kind=breaker}"] == 0
    assert found["slurm_ft_drained_nodes{}"] == 1
    assert found["slurm_ft_alerts_waiting{}"] == 0


def test_while_slurm_is_silent_they_say_nothing_about_it(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def silent(*_: object) -> None:
        raise refused("sinfo", "no answer")

    monkeypatch.setattr(slurm, "nodes", silent)
    assert main(["metrics"]) == 0
    text = capsys.readouterr().out
    promtool("check", "metrics", text=text)
    assert "slurm_ft_alerts_waiting 0.0" in text
    assert "slurm_ft_brake" not in text


def test_the_file_is_replaced_as_a_whole_and_readable(tmp_path: Path, slurm: FakeSlurm) -> None:
    path = tmp_path / "out" / "slurm_ft.prom"
    path.parent.mkdir()
    path.write_text("old")
    assert main(["metrics", "--output", str(path)]) == 0
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]
    assert samples(path.read_text())["slurm_ft_drained_nodes{}"] == 1


def test_a_missing_directory_is_named(tmp_path: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "--output", str(tmp_path / "none" / "x.prom")]) == 1
    assert "Does its directory exist" in capsys.readouterr().err


def test_the_alert_rules_are_valid_and_fire(tmp_path: Path) -> None:
    promtool("check", "rules", str(CONTRIB / "slurm_ft_rules.yaml"))
    promtool("test", "rules", str(CONTRIB / "slurm_ft_rules_test.yaml"))


def test_rules_and_dashboard_ask_for_metrics_that_exist(
    tmp_path: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, 0, FAILOVER, (Stage.SEEN, 1.0), (Stage.DECIDED, 2.0))
    main(["metrics"])
    known = {name.partition("{")[0] for name in samples(capsys.readouterr().out)}
    dashboard = json.loads((CONTRIB / "slurm_ft_dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = re.findall(r"expr: (.*)", (CONTRIB / "slurm_ft_rules.yaml").read_text())
    names = {name for text in (*asked, *rules) for name in re.findall(r"\bslurm_ft_[a-z_]+", text)}
    assert names
    assert names <= known

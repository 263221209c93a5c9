"""`slurm-ft reconcile`, from what the journal and Slurm hold to what it does and says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft import config as site_config
from slurm_ft import journal
from slurm_ft.cli import main
from slurm_ft.config import Config, Mode
from slurm_ft.controller import site as site_module
from slurm_ft.controller.job_lock import job_lock
from slurm_ft.failover import ledger, node_record
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Attempt, Domain, JobKey, Ledger, NodeVerdict
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord

NOW = 1_700_000_000.0


@pytest.fixture
def slurm(job_record: JobRecord, fault: NodeVerdict, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Job 12 shows FAILED since a moment, and n1 blames itself."""
    failed = replace(job_record, state="FAILED", nodes="n[1-2]", submitted=NOW - 90, started=NOW - 80, ended=NOW - 5)
    reason = node_record.add("", replace(fault, at=NOW - 5))
    fake = FakeSlurm.of(failed, node("n1", "idle+drain", reason), node("n2"))
    fake.now = NOW
    monkeypatch.setattr(CommandLine, "of", lambda _: fake)
    return fake


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    config = Config(mode=Mode.ACT, state_dir=tmp_path, log_file=tmp_path / "log", node_reuse_delay=0)
    monkeypatch.setattr(site_config, "load", lambda: config)
    monkeypatch.setattr(site_module, "time", SimpleNamespace(time=lambda: NOW))
    return config


def reconcile(capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main.main(["reconcile"]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_failed_job_that_no_hook_has_seen_fails_over(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    said = reconcile(capsys)
    assert said[0] == "job 12 attempt 0: judged now: xid79 on n1 GPU 0000:3b:00: failover 1 of 3"
    assert [call[0] for call in slurm.changes] == ["requeue", "update_job", "update_job"]
    assert slurm.excluded["12"] == "n1"
    assert reconcile(capsys) == ["nothing was left open"]


def test_it_is_judged_once_however_often_reconcile_runs(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    slurm.set_node("n1", state="idle", reason="")
    assert "no hardware signal" in reconcile(capsys)[0]
    assert reconcile(capsys) == ["nothing was left open"]
    assert slurm.changes == []


@pytest.mark.parametrize(
    "fields",
    [
        {"ended": NOW - 601},
        {"state": "CANCELLED"},
        {"state": "COMPLETED"},
        {"comment": "did not ask"},
        {"state": "COMPLETING"},  # its hook is at work
        {"state": "RUNNING", "ended": None},
    ],
)
def test_other_jobs_are_left_alone(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], fields: dict[str, object]
) -> None:
    slurm.set_job("12", **fields)
    assert reconcile(capsys) == ["nothing was left open"]
    assert slurm.changes == []


def test_a_component_of_a_het_job_is_its_leaders_business(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    slurm.job_records = {"11+1": replace(slurm.job_records["12"], address="11+1")}
    assert reconcile(capsys) == ["nothing was left open"]


def test_an_end_that_was_noted_is_judged_on_what_the_hook_was_told(
    slurm: FakeSlurm, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """The node failed, Slurm has requeued the job and forgotten where it ran."""
    slurm.set_node("n1", state="down", reason="Not responding")
    slurm.set_job("12", state="PENDING", restarts=1, submitted=NOW - 2, ended=None, nodes="", exit_code=0)
    told = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_EXIT_CODE2": "0:0"}
    journal.append(
        config.state_dir, Entry(NOW - 5, Stage.SEEN, JobKey(12, "12", 0), "", "run", NOW - 90, "act", told=told)
    )
    assert "Slurm has requeued the job already" in reconcile(capsys)[0]
    assert slurm.excluded["12"] == "n1"
    history = ledger.read(slurm.job_records["12"].admin_comment)
    assert history is not None
    assert (history.run_id, history.count) == ("run", 1)


def test_a_restart_that_no_hook_announced_is_entered(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    slurm.set_node("n1", state="idle", reason="")
    slurm.set_job("12", state="PENDING", restarts=1, ended=None, nodes="")
    assert reconcile(capsys)[-1] == "job 12: its restart 1 is in the ledger now"
    history = ledger.read(slurm.job_records["12"].admin_comment)
    assert history is not None
    assert [(one.number, one.counted) for one in history.attempts] == [(0, False)]
    assert reconcile(capsys) == ["nothing was left open"]


def test_an_end_of_a_job_that_slurm_has_forgotten_is_closed(
    slurm: FakeSlurm, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.job_records.clear()
    journal.append(config.state_dir, Entry(NOW, Stage.SEEN, JobKey(12, "12", 0), "", "run", 1.0, "act"))
    assert reconcile(capsys) == ["job 12 attempt 0: forgotten by Slurm"]
    assert reconcile(capsys) == ["nothing was left open"]


def test_a_job_that_another_process_works_on_is_passed_over(
    slurm: FakeSlurm, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    with job_lock(config.state_dir, 12, 0):
        assert reconcile(capsys) == ["nothing was left open"]
    assert slurm.changes == []


def test_an_error_about_one_job_does_not_keep_the_others_waiting(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.job_records["13"] = replace(slurm.job_records["12"], raw_id=13, address="13", comment="[slurm_ft]")
    slurm.refused.add("nodes")
    slurm.before["nodes"] = lambda: slurm.refused.discard("nodes") if len(slurm.calls) > 4 else None
    assert any(line.startswith("job 12: `nodes` failed") for line in reconcile(capsys))


def test_an_old_verdict_leaves_a_nodes_comment(
    slurm: FakeSlurm, fault: NodeVerdict, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.job_records.clear()
    slurm.set_node("n2", comment="rack 7 " + node_record.add("", replace(fault, node="n2")))
    assert reconcile(capsys) == ["node n2: an old verdict is gone from its Comment"]
    assert slurm.node_records["n2"].comment == "rack 7"


def test_in_mode_observe_nothing_is_changed(
    slurm: FakeSlurm, config: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_config, "load", lambda: replace(config, mode=Mode.OBSERVE))
    assert reconcile(capsys) == ["mode: observe: nothing is changed"]
    assert slurm.calls == []


def test_an_erased_ledger_costs_no_count(
    slurm: FakeSlurm, fault: NodeVerdict, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second failure, after somebody has emptied Comment and AdminComment."""
    reconcile(capsys)
    slurm.set_job("12", state="FAILED", ended=NOW - 1, nodes="n2", comment="[slurm_ft]", admin_comment="")
    slurm.set_node("n2", state="idle+drain", reason=node_record.add("", replace(fault, node="n2", attempt=1, at=NOW)))
    assert reconcile(capsys)[0].endswith("failover 2 of 3")
    assert slurm.job_records["12"].comment == "[slurm_ft n=2/3 ex=n1,n2 cause=xid79]"
    history = ledger.read(slurm.job_records["12"].admin_comment)
    assert history is not None
    assert [attempt.number for attempt in history.attempts] == [0, 1]


def test_a_ledger_with_the_attempt_needs_nothing(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    known = Attempt(0, "n1", None, 1.0, Domain.HARDWARE, "xid79", ("n1",), counted=True)
    slurm.set_job(
        "12", state="PENDING", restarts=1, ended=None, admin_comment=ledger.write("", Ledger("run", (known,)))
    )
    assert reconcile(capsys) == ["nothing was left open"]


def test_a_state_directory_that_may_not_be_searched_says_who_may(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with mode 0750 for an ordinary user; root, as which the tests may run, may search any."""

    def forbidden(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", forbidden)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert main.main(["reconcile"]) == 1
    assert "Run as root or as SlurmUser" in capsys.readouterr().err
    assert not slurm.calls

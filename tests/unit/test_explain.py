from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft import config as site
from slurm_ft import journal
from slurm_ft.cli import main
from slurm_ft.config import Config
from slurm_ft.failover import ledger, node_record
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import (
    Action,
    Attempt,
    Decision,
    Domain,
    Event,
    EventKind,
    Evidence,
    JobKey,
    JobState,
    Ledger,
    NodeAction,
    NodeVerdict,
    Verdict,
)
from slurm_ft.node import event_file, judgement_file
from slurm_ft.node.event_file import RecordedEvent
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord
from slurm_ft.status.explain import Sources, explain

LINE = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
VERDICT = Verdict(
    Domain.HARDWARE, "xid79", "hardware_fault", "Xid 79 is a hardware fault.", node_action=NodeAction.DRAIN
)
EVIDENCE = (
    Evidence("kernel_log", readable=True, events=(Event(EventKind.XID, 79, "0000:3b:00", LINE, 100.0),)),
    Evidence("nvml", readable=False, detail="no answer"),
)
JUDGED = judgement_file.judgement(VERDICT, EVIDENCE, "12.0", now=2000.0, uptime=150.0)
PAST = Attempt(0, "n1", 1000.0, 2000.0, Domain.HARDWARE, "xid79", ("n1",), counted=True, text=LINE)
REQUEUE = Decision(
    Action.REQUEUE, JobState.FAILOVER_IN_PROGRESS, Domain.HARDWARE, "xid79", 1, 3, "hardware_fault",
    "xid79 on n1 GPU 0000:3b:00: failover 1 of 3",
)  # fmt: skip
DECIDED = Entry(2001.0, Stage.DECIDED, JobKey(12, "12", 0), mode="act", decision=REQUEUE)
REFUSED = Entry(2002.0, Stage.FAILED, JobKey(12, "12", 0), mode="act", detail="x: y")


@pytest.fixture
def job(job_record: JobRecord) -> JobRecord:
    history = ledger.write("", Ledger("r", (PAST,), ("n1",)))
    return replace(job_record, state="RUNNING", nodes="n2", restarts=1, admin_comment=history, started=2010.0)


def test_shows_each_attempt_from_evidence_to_what_was_done(job: JobRecord, fault: NodeVerdict) -> None:
    event = Event(EventKind.XID, 79, "0000:3b:00", LINE, 100.0)
    text = explain(
        Sources(
            12,
            job,
            [node("n1", "drain", node_record.add("", fault))],
            [DECIDED, REFUSED],
            {"n1": [RecordedEvent("b", 77, 1999.0, event, ("12.0",)), RecordedEvent("b", 78, 1999.0, event, ("9.0",))]},
            {"n1": [JUDGED, replace(JUDGED, attempt="9.0")]},
            ("the moon",),
        )
    )
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0].startswith("job 12 train of alice: RUNNING, restarts 1; 1 failovers spent, excluded n1")
    assert lines[1].startswith("restart 0 on n1, ")
    assert lines[2].startswith("evidence  n1 ")
    assert lines[2].endswith(f"{LINE} (kernel_log)")
    assert lines[3] == "evidence  n1 nvml could not look: no answer"
    assert "hardware xid79 GPU 0000:3b:00: NVRM: Xid" in lines[4]
    assert "record 77" in lines[5]
    assert lines[6].endswith("hardware xid79, rule hardware_fault, node action drain: Xid 79 is a hardware fault.")
    lines = lines[2:]
    assert "requeue, rule hardware_fault: xid79 on n1" in lines[5]
    assert lines[6].endswith("x: y")
    assert lines[7].startswith("restart 1 on n2, ")
    assert lines[8] == "evidence  none that can be seen from here"
    assert lines[9:] == ["not seen: the moon"]


def test_what_a_killed_hook_wrote_twice_is_told_once(job: JobRecord) -> None:
    event = Event(EventKind.XID, 79, "0000:3b:00", LINE, 100.0)
    twice = [DECIDED, replace(DECIDED, at=2001.5), REFUSED, replace(REFUSED, at=2003.0)]
    judged = {"n1": [JUDGED, replace(JUDGED, at=JUDGED.at + 1)]}
    recorded = [RecordedEvent("b", 77, at, event, ("12.0",)) for at in (1999.0, 1999.5)]
    text = explain(Sources(12, job, journal=twice, events={"n1": recorded}, judged=judged))
    for part in ("judged ", "decided ", "failed ", "record 77"):
        assert text.count(part) == 1


def test_a_user_sees_the_ledger_alone(job: JobRecord) -> None:
    text = explain(Sources(12, job))
    assert f"ledger: {LINE}" in text
    assert "hardware xid79: counted as a failover, excluded n1 (ledger)" in text


def test_what_belongs_to_an_earlier_job_of_the_same_id_is_left_out(job_record: JobRecord, fault: NodeVerdict) -> None:
    old = replace(fault, at=10.0)
    text = explain(
        Sources(12, job_record, [node("n1", "drain", node_record.add("", old))], [replace(DECIDED, at=20.0)])
    )
    assert "xid79" not in text


def test_a_job_that_slurm_forgot_is_told_from_the_journal() -> None:
    other = replace(DECIDED, key=JobKey(13, "13", 0), decision=replace(REQUEUE, rule="other"))
    text = explain(Sources(12, None, journal=[DECIDED, other]))
    assert "Slurm has forgotten it" in text
    assert "rule hardware_fault" in text
    assert "other" not in text


def test_in_mode_observe_it_says_that_nothing_was_changed(job: JobRecord) -> None:
    watched = replace(DECIDED, stage=Stage.WATCH, node="n1", mode="observe")
    assert "end the job, to be requeued on n1, rule hardware_fault" in explain(Sources(12, job, journal=[watched]))
    assert "(mode observe: nothing was changed)" in explain(Sources(12, job, journal=[watched]))


def test_no_control_character_reaches_the_terminal(job: JobRecord) -> None:
    assert explain(Sources(12, replace(job, name="a\x1b[2Jb\nc"))).splitlines()[0].startswith("job 12 a?[2Jb?c of")


class TestCommand:
    @pytest.fixture
    def settings(self, tmp_path: Path, job: JobRecord, monkeypatch: pytest.MonkeyPatch) -> Config:
        settings = Config(state_dir=tmp_path, log_file=tmp_path / "log")
        monkeypatch.setattr(site, "load", lambda: settings)
        monkeypatch.setattr(CommandLine, "of", lambda _: FakeSlurm.of(job, node("n1")))
        return settings

    def test_reads_what_is_here(self, settings: Config, capsys: pytest.CaptureFixture[str]) -> None:
        journal.append(settings.state_dir, DECIDED)
        event = Event(EventKind.XID, 79, "0000:3b:00", LINE, 100.0)
        event_file.append(
            event_file.path_of(settings.state_dir, "n1"), [RecordedEvent("b", 77, 1999.0, event, ("12.0",))]
        )
        assert main.main(["explain", "12"]) == 0
        out = capsys.readouterr().out
        assert "rule hardware_fault" in out
        assert "(event file, record 77)" in out
        assert "not seen: event files and judgements of other machines" in out

    def test_says_what_is_not_here(self, settings: Config, capsys: pytest.CaptureFixture[str]) -> None:
        assert main.main(["explain", "12"]) == 0
        assert "not seen: the journal (no " in capsys.readouterr().out

    def test_a_job_that_nobody_knows_is_an_error(
        self, settings: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(CommandLine, "of", lambda _: FakeSlurm())
        assert main.main(["explain", "99"]) == 1
        assert "neither Slurm nor the journal knows it" in capsys.readouterr().err


def test_the_jobs_own_word_on_where_it_resumed_stands_with_its_attempt(job: JobRecord) -> None:
    text = explain(Sources(12, replace(job, comment="[slurm_ft.resume step=1200 attempt=1 since=0]")))
    assert text.count("resumed   from step 1200; 1 earlier attempt(s) in a row did too (the job's own word)") == 1
    assert "resumed" not in explain(Sources(12, replace(job, comment="[slurm_ft.resume step=1200 attempt=7]")))


@pytest.mark.parametrize("name", ["", "x"])
def test_what_names_no_job_is_a_usage_error(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["explain", name]) == 2
    assert f"{name!r} names no job" in capsys.readouterr().err

"""docs/formats.md names the keys that the code writes."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from slurm_ft import alert, journal_entry, log_marks
from slurm_ft.alert import Alert, Kind
from slurm_ft.checkpoints import resume_record
from slurm_ft.classify import classify
from slurm_ft.cli import check, check_node, checkpoint_table, doctor, nodes
from slurm_ft.failover import comment_tag, ledger, node_record, resume_tag
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.launch import record
from slurm_ft.model import Action, Attempt, Decision, Domain, Evidence, ExitStatus, JobKey, JobState, Ledger
from slurm_ft.node import judgement_file
from slurm_ft.status.fleet import Fault

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
SECTIONS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")}


def keys(heading: str) -> set[str]:
    """The names in the first column of the section's table."""
    rows = re.findall(r"^\| (`[^|]*) \|", SECTIONS[heading], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def full_entry() -> dict[str, Any]:
    decision = Decision(
        Action.REQUEUE, JobState.FAILOVER_IN_PROGRESS, Domain.HARDWARE, "xid79", 1, 3, "hardware_fault", "why",
        exclude=("n1",), text="t", step=5, drained=("n1",),
    )  # fmt: skip
    entry = Entry(
        1.0, Stage.DECIDED, JobKey(1, "1", 0), "c", "r", 1.0, "act", "n1", "n1", 1.0, {"A": "b"}, decision, "d"
    )  # fmt: skip
    return journal_entry.to_json(entry)


def test_the_journal() -> None:
    assert keys("The journal: state_dir/journal.jsonl") == set(full_entry())
    assert [stage.value for stage in Stage if stage.value not in PAGE] == []
    assert journal_entry.SCHEMA_VERSION == 2


def test_the_ledger() -> None:
    attempt = Attempt(
        0, "n1", 1.0, 2.0, Domain.HARDWARE, "xid79", ("n1",), counted=True, text="t", step=5, drained=("n1",)
    )
    text = ledger.write("", Ledger("3f2a9c", (attempt,), ("n1",)))
    assert keys("The job's AdminComment: the ledger") == set(
        re.findall(r'"([a-z]+)":', text.partition('"attempts":')[2])
    )
    assert f'"v":{ledger.SCHEMA_VERSION}' in PAGE


def test_the_lines_in_a_jobs_log() -> None:
    section = SECTIONS["Our lines in a job's log"]
    for line in (log_marks.ended(7, "1/4", 0, "x"), log_marks.again(7, "1/4", 0, "x")):
        begins = line.rpartition("x")[0].replace("7", "JOB").replace("1/4", "K/N").replace("restart 0", "restart R")
        assert f"`{begins}`" in section
    assert f"`{log_marks.BANNER}JOB attempt K/N · restart R · `" in section


def test_a_judgement() -> None:
    evidence = (Evidence("kernel_log", readable=True),)
    kept = judgement_file.judgement(classify(evidence, ExitStatus(1, 0)), evidence, "1.0", now=1.0, uptime=1.0)
    written = judgement_file._to_json(kept)
    assert keys("What a node keeps: state_dir/judged/NODE.jsonl") == set(written)
    assert [name for name in written["seen"][0] if f"`{name}`" not in PAGE] == []


def test_an_alert() -> None:
    texts = {field.name: "x" for field in fields(Alert) if field.name not in ("kind", "at")}
    assert keys("An alert: state_dir/alerts/new/*.json") == set(alert.to_json(Alert(kind=Kind.TEST, at=1.0, **texts)))


def test_the_record_of_a_choice() -> None:
    sources = (Path(module.__file__ or "").read_text() for module in (resume_record, record))
    written = {name for source in sources for name in re.findall(r'"([a-z_]+)": ', source)} - {
        "path",
        "verdict",
        "reason",
    }
    assert keys("resume.json") == written | {"path", "verdict"}
    assert f"| `schema` | {resume_record.SCHEMA} |" in PAGE


@pytest.mark.parametrize("line", re.findall(r"^    (\[slurm_ft[ \]].*?\])", PAGE, re.MULTILINE))
def test_a_comment_is_read_as_the_page_says(line: str) -> None:
    tag = comment_tag.read(line)
    assert tag is not None
    assert (tag.count, tag.excluded) == ((1, ("n1",)) if "n=1/3" in line else (0, ()))


@pytest.mark.parametrize("line", re.findall(r"^    (\[slurm_ft\.resume.*?\])", PAGE, re.MULTILINE))
def test_a_resume_mark_is_read_as_the_page_says(line: str) -> None:
    mark = resume_tag.read(line)
    assert mark is not None
    assert mark.step == (1200 if "1200" in line else None)


def test_a_verdict_is_read_as_the_page_says() -> None:
    (line,) = re.findall(r"^    (slurm_ft: hardware .*)$", PAGE, re.MULTILINE)
    (verdict,) = node_record.in_reason(line, "n1")
    assert (verdict.cause, verdict.raw_id, verdict.pci) == ("xid79", 12, "0000:3b:00")


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("nodes", nodes),
        ("check`", check),
        ("checkpoints", checkpoint_table),
        ("check-node", check_node),
        ("doctor", doctor),
    ],
)
def test_the_json_of_a_command(command: str, module: ModuleType) -> None:
    source = Path(module.__file__ or "").read_text()
    written = set(re.findall(r'"([a-z_]+)": ', source)) | (
        {field.name for field in fields(Fault)} if module is nodes else set()
    )
    (row,) = re.findall(rf"^\| `slurm-ft {command}.*$", PAGE, re.MULTILINE)
    assert written - set(re.findall(r"`([a-z_]+)`", row)) == set()

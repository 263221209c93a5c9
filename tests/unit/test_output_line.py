"""The epilog's line in a job's own log: for whom, what it says, and whose file it never touches."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft.config import Config, Mode, OptIn
from slurm_ft.launch import restart_line
from slurm_ft.model import Domain, Event, EventKind, JobKey, NodeAction, Verdict
from slurm_ft.node import output_line
from slurm_ft.sensors.job_output import of_this_attempt
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord

KEY = JobKey(12, "12", 1)
XID = Event(EventKind.XID, 79, "0000:3b:00", 'NVRM: Xid (PCI:0000:3b:00): 79, pid=1, "x" fell\x1b[2J off the bus')
HARDWARE = Verdict(Domain.HARDWARE, "xid79", "hardware_fault", "Xid 79.", NodeAction.DRAIN, decisive=XID)
OWN = Verdict(Domain.APPLICATION, "python_exception", "application_fault", "A Python exception.")
ACT = Config(mode=Mode.ACT)
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_text("step 1\n")
    return path


@pytest.fixture
def environ(log: Path) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_UID": str(os.geteuid()),
        "SLURM_JOB_GID": str(os.getegid()),
        "SLURM_JOB_STDOUT": str(log),
        "SLURM_JOB_COMMENT": "mine [slurm_ft n=1/3 ex=n9 cause=xid79]",
        "SLURM_JOB_EXIT_CODE2": "1:0",
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_NODELIST": "n1",
        "SLURMD_NODENAME": "n1",
    }


@pytest.mark.parametrize(
    ("config", "change", "wanted"),
    [
        (ACT, {}, True),
        (replace(ACT, mode=Mode.OBSERVE), {}, False),
        (replace(ACT, evidence_in_log=False), {}, False),
        (ACT, {"SLURM_JOB_COMMENT": "mine"}, False),
        (replace(ACT, opt_in=OptIn.REQUEUE), {"SLURM_JOB_COMMENT": "mine"}, True),
        (replace(ACT, partitions=("spot",)), {}, False),
        (replace(ACT, partitions=("spot", "gpu")), {}, True),
        (ACT, {"SLURM_JOB_EXIT_CODE2": "0:0"}, False),
        (ACT, {"SLURM_NODELIST": "n[1-2]"}, True),
        (ACT, {"SLURM_NODELIST": "n[0-2]"}, False),
        (ACT, {"SLURM_NODELIST": "n[0-"}, False),
        (ACT, {"SLURM_NODELIST": ""}, False),
    ],
)
def test_for_whom(environ: dict[str, str], config: Config, change: dict[str, str], wanted: bool) -> None:
    assert output_line.wanted(environ | change, config, "n1") is wanted


def test_what_a_hardware_fault_is_told_as(environ: dict[str, str]) -> None:
    assert output_line.compose(environ, ACT, KEY, HARDWARE, NodeAction.DRAIN) == (
        "slurm_ft: job 12 attempt 2/4 (restart 1) ended on n1 with exit code 1: hardware xid79 "
        "\"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, 'x' fell?[2J off the bus\"; n1 is drained; "
        "the job starts again without n1, if it may be requeued (2 failovers left)"
    )


@pytest.mark.parametrize(
    ("change", "action", "told"),
    [
        ({"SLURM_JOB_COMMENT": "[slurm_ft n=3/3]"}, NodeAction.DRAIN, "; n1 is drained; all failovers are spent"),
        ({}, NodeAction.NONE, "; failover is held back and n1 not drained: see slurm-ft status"),
    ],
)
def test_what_does_not_follow_is_not_promised(
    environ: dict[str, str], change: dict[str, str], action: NodeAction, told: str
) -> None:
    assert output_line.compose(environ | change, ACT, KEY, HARDWARE, action).endswith(told)


def test_a_contained_error_leaves_the_node_in_service(environ: dict[str, str]) -> None:
    contained = replace(HARDWARE, node_action=NodeAction.DRAIN_AFTER_REPEAT)
    told = output_line.compose(environ, ACT, KEY, contained, NodeAction.NONE)
    assert "drained" not in told
    assert "the job starts again without n1" in told


@pytest.mark.parametrize(
    ("verdict", "nodes", "exit_code", "told"),
    [
        (OWN, "n1", "1:0", "exit code 1: application: A Python exception; the program's own end, not started again"),
        (
            OWN,
            "n[1-2]",
            "1:0",
            "A Python exception; no hardware fault of n1 that ends a job; the other nodes judge for",
        ),
        (replace(OWN, domain=Domain.UNKNOWN), "n1", "0:9", "with signal 9: unknown: A Python exception; not started"),
    ],
)
def test_what_other_ends_are_told_as(
    environ: dict[str, str], verdict: Verdict, nodes: str, exit_code: str, told: str
) -> None:
    environ |= {"SLURM_NODELIST": nodes, "SLURM_JOB_EXIT_CODE2": exit_code}
    assert told in output_line.compose(environ, ACT, KEY, verdict, NodeAction.NONE)


def test_it_is_added_behind_what_is_there(environ: dict[str, str], log: Path) -> None:
    assert output_line.append(environ, ACT, KEY, "a line") == ""
    with log.open("a") as file:
        file.write("no line break")
    assert output_line.append(environ, ACT, KEY, "x" * 2000) == ""
    first, second, torn, long, rest = log.read_text().split("\n")
    assert (first, second, torn, rest) == ("step 1", "a line", "no line break", "")
    assert len(long) < 600


def untouched(path: Path) -> None:
    path.write_text("not yours\n")


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "second name", "missing", "device"])
def test_what_is_not_the_users_own_plain_file_is_left_alone(
    environ: dict[str, str], log: Path, tmp_path: Path, kind: str
) -> None:
    other = tmp_path / "other"
    untouched(other)
    log.unlink()
    if kind == "link":
        log.symlink_to(other)
    elif kind == "fifo":
        os.mkfifo(log)
    elif kind == "directory":
        log.mkdir()
    elif kind == "second name":
        log.hardlink_to(other)
    elif kind == "device":
        environ["SLURM_JOB_STDOUT"] = "/dev/null"
    assert output_line.append(environ, ACT, KEY, "a line") != ""
    assert other.read_text() == "not yours\n"
    assert log.exists() is (kind in ("link", "fifo", "directory", "second name"))


@root_only
def test_a_foreign_file_that_everybody_may_write_to_is_left_alone(environ: dict[str, str], log: Path) -> None:
    log.chmod(0o666)
    log.parent.chmod(0o755)
    for parent in log.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o055)
    environ |= {"SLURM_JOB_UID": "65534", "SLURM_JOB_GID": "65534"}
    assert output_line.append(environ, ACT, KEY, "a line") == "not the user's own file, or one with several names"
    assert log.read_text() == "step 1\n"


def test_an_arrays_task_is_looked_up_only_where_its_file_is_missing(
    environ: dict[str, str], log: Path, monkeypatch: pytest.MonkeyPatch, job_record: JobRecord
) -> None:
    fake = FakeSlurm(node_records={"n1": node("n1", "mixed", "", "")})
    fake.job_records["12"] = replace(job_record, raw_id=12, address="10_3")
    monkeypatch.setattr(CommandLine, "of", lambda _: fake)
    assert output_line.append(environ, ACT, KEY, "one") == ""
    assert fake.calls == []
    (log.parent / "10.3").write_text("")
    environ["SLURM_JOB_STDOUT"] = str(log.parent / "%A.%a")
    assert output_line.append(environ, ACT, KEY, "two") == ""
    assert (log.parent / "10.3").read_text() == "two\n"


ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


def test_our_own_lines_are_no_evidence_and_an_earlier_end_begins_the_attempt(environ: dict[str, str]) -> None:
    quoting = replace(OWN, decisive=Event(EventKind.OUTPUT, None, None, ECC))
    ended = [output_line.compose(environ, ACT, replace(KEY, attempt=n), quoting, NodeAction.NONE) for n in (0, 1)]
    lines = ["a", ended[0], "b", ended[1]]
    assert of_this_attempt(lines, 1, "12") == ["b"]  # another node of the job has written the second already
    assert of_this_attempt(lines, 2, "12") == []
    assert of_this_attempt(lines, 0, "13") == []  # a new job that appends to an old log
    assert of_this_attempt(["a", ended[0]], 0, "12") == ["a"]


LEDGER = (
    'slurm_ft:{"v":1,"run":"r","excluded":["n1"],"attempts":[{"no":0,"nodes":"n[1-2]","started":1.0,"ended":2.0,'
    '"domain":"hardware","cause":"xid79","bad":["n1"],"counted":true,"text":"NVRM: Xid 79"},{"no":1,"nodes":"n3",'
    '"started":3.0,"ended":4.0,"domain":"unknown","cause":"preempted","bad":[],"counted":false}]}'
)


@pytest.mark.parametrize(
    ("restart", "line"),
    [
        (0, ""),
        (1, 'attempt 1/4 ended on n1: xid79 "NVRM: Xid 79"; goes on without n1 (failover 1 of 3)'),
        (2, "restart 1 ended on n3: preempted; no failover spent"),
        (3, ""),
    ],
)
def test_why_a_job_starts_again(job_record: JobRecord, restart: int, line: str) -> None:
    job = replace(job_record, comment="[slurm_ft n=1/3 ex=n1]", admin_comment=LEDGER)
    told = restart_line.compose(job, Config(), restart)
    assert told == (line and f"slurm_ft: job 12 attempt 2/4 (restart {restart}) starts again: {line}")
    assert restart_line.compose(job, Config(evidence_in_log=False), restart) == ""
    assert restart_line.compose(replace(job, comment="mine"), Config(), restart) == ""

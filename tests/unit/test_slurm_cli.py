"""The backend of Slurm's commands against small scripts in their place, which print what the real ones were seen to."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from fake_slurm import node
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_ft.config import Config
from slurm_ft.errors import SlurmCommandError
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.fields import JOB_FIELDS, NODE_FIELDS
from slurm_ft.slurm.protocol import JobUpdate

# As squeue -O of 22.05 prints them: nothing and `(null)` both mean that there is none.
ROW = {
    "JobID": "5", "JobArrayID": "2_0", "Name": "train", "UserName": "alice", "Partition": "main", "State": "COMPLETING",
    "Reason": "NonZeroExitCode", "NodeList": "n[1-2]", "RestartCnt": "1", "Requeue": "1", "BatchFlag": "1",
    "exit_code": "256", "SubmitTime": "1795967514", "StartTime": "1795967516", "EndTime": "1000000600",
    "STDOUT": "/home/alice/out", "Comment": "[slurm_ft]", "admin_comment": "(null)",
    "BatchHost": "n1", "ReqNodes": "", "Reservation": "N/A",
    "NumNodes": "2", "TimeLimit": "1-02:00:00", "Account": "(null)", "QOS": "normal",
}  # fmt: skip
NODE = {"NodeList": "n1", "StateComplete": "IDLE+DRAIN*", "Reason": "none", "Comment": "(null)"}

TABLE = """#!/bin/sh
# Keeps its arguments and its environment, and prints the cells of rows/*, each with the end that -O asks for.
env -0 >"$0.env"
printf '%s\\0' "$@" >>"$0.arguments"
for format; do :; done
end=${format#*:}
end=${end%%,*}
for row in "$0".rows/*; do
    [ -d "$row" ] || continue
    for cell in "$row"/*; do cat "$cell"; printf %s "$end"; done
    echo
done
"""
ECHO = """#!/bin/sh
printf '%s\\0' "$@" >>"$0.arguments"
[ ! -e "$0.answer" ] || cat "$0.answer"
"""


class Commands:
    """A directory of scripts in the place of Slurm's commands."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.slurm = CommandLine(directory, timeout=10)

    def script(self, name: str, text: str) -> None:
        path = self.directory / name
        path.write_text(text)
        path.chmod(0o755)

    def table(self, name: str, *rows: Sequence[str | bytes]) -> None:
        """Let `name` print these rows."""
        self.script(name, TABLE)
        for number, row in enumerate(rows):
            directory = self.directory / f"{name}.rows" / f"{number:03}"
            directory.mkdir(parents=True, exist_ok=True)
            for column, cell in enumerate(row):
                content = cell if isinstance(cell, bytes) else cell.encode("utf-8", "surrogateescape")
                (directory / f"{column:02}").write_bytes(content)

    def jobs(self, **fields: str | bytes) -> None:
        self.table("squeue", [{**ROW, **fields}[name] for name in JOB_FIELDS])

    def nodes(self, *rows: dict[str, str]) -> None:
        self.table("sinfo", *([{**NODE, **row}[name] for name in NODE_FIELDS] for row in rows))

    def answer(self, name: str, text: str = "") -> None:
        self.script(name, ECHO)
        (self.directory / f"{name}.answer").write_text(text)

    def arguments(self, name: str) -> list[str]:
        text = (self.directory / f"{name}.arguments").read_bytes().decode("utf-8", "surrogateescape")
        return text.split("\0")[:-1]

    def environment(self, name: str) -> dict[str, str]:
        items = (self.directory / f"{name}.env").read_text().split("\0")[:-1]
        return dict(item.split("=", 1) for item in items)


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_a_job_is_read_field_by_field(commands: Commands) -> None:
    commands.jobs()
    (job,) = commands.slurm.jobs()
    assert (job.raw_id, job.address, job.name, job.user, job.partition) == (5, "2_0", "train", "alice", "main")
    assert (job.state, job.reason, job.nodes, job.restarts) == ("COMPLETING", "NonZeroExitCode", "n[1-2]", 1)
    assert (job.requeue, job.batch, job.exit_code, job.exit_signal) == (True, True, 1, 0)
    assert (job.submitted, job.started, job.ended) == (1795967514.0, 1795967516.0, 1000000600.0)
    assert (job.stdout, job.comment, job.admin_comment) == ("/home/alice/out", "[slurm_ft]", "")


@pytest.mark.parametrize(
    ("fields", "attribute", "value"),
    [
        ({"Reason": "None"}, "reason", ""),
        ({"NodeList": ""}, "nodes", ""),
        ({"NodeList": "(null)"}, "nodes", ""),
        ({"StartTime": "N/A"}, "started", None),
        ({"EndTime": "Unknown"}, "ended", None),
        ({"exit_code": "9"}, "exit_signal", 9),
        ({"exit_code": "1:15"}, "exit_signal", 15),
        ({"exit_code": "35072"}, "exit_code", 137),
        ({"Requeue": "0"}, "requeue", False),
        ({"BatchFlag": "0"}, "batch", False),
        ({"BatchFlag": "2"}, "batch", True),
        ({"Comment": "(null)"}, "comment", ""),
        ({"Comment": ""}, "comment", ""),
        ({"Comment": "none"}, "comment", "none"),
        ({"Comment": "N/A"}, "comment", "N/A"),
        ({"admin_comment": "Unknown"}, "admin_comment", "Unknown"),
        ({"Name": "(null)"}, "name", "(null)"),
        ({"Name": ""}, "name", ""),
    ],
)
def test_what_slurm_prints_for_nothing_is_told_from_what_a_user_wrote(
    commands: Commands, fields: dict[str, str], attribute: str, value: object
) -> None:
    commands.jobs(**fields)
    assert getattr(commands.slurm.jobs()[0], attribute) == value


HOSTILE = [
    "two\nlines", "\n", "\nleading", "trailing\n", "'\"`$(touch /tmp/x)", "a|b;c,d:e#f", "#0123456789abcdef#",
    "é漢🙂\u2028", "\x01\x1b[2J\x7f\t", b"\xff\xfe\x80", "%s%n", "x" * 9000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
@pytest.mark.parametrize("field", ["Name", "Comment", "admin_comment", "STDOUT"])
def test_no_text_of_a_user_moves_a_field(commands: Commands, field: str, text: str | bytes) -> None:
    commands.table(
        "squeue",
        [{**ROW, field: text}[name] for name in JOB_FIELDS],
        [{**ROW, "JobID": "6", "JobArrayID": "6"}[name] for name in JOB_FIELDS],
    )
    first, second = commands.slurm.jobs()
    expected = text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
    attribute = {"Name": "name", "Comment": "comment", "admin_comment": "admin_comment", "STDOUT": "stdout"}[field]
    assert getattr(first, attribute) == expected
    assert (first.raw_id, first.partition, second.raw_id, second.name) == (5, "main", 6, "train")


texts = st.binary(max_size=60).filter(lambda text: b"\0" not in text)


@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
@given(name=texts, comment=texts)
def test_any_bytes_survive(commands: Commands, name: bytes, comment: bytes) -> None:
    commands.jobs(Name=name, Comment=comment)
    (job,) = commands.slurm.jobs()
    assert job.name.encode("utf-8", "surrogateescape") == name
    assert job.comment.encode("utf-8", "surrogateescape") == (b"" if comment == b"(null)" else comment)


def test_each_call_ends_its_fields_with_another_word(commands: Commands) -> None:
    commands.jobs()
    commands.slurm.jobs()
    commands.slurm.jobs()
    formats = [argument for argument in commands.arguments("squeue") if argument.startswith("JobID:")]
    assert len(set(formats)) == 2


@pytest.mark.parametrize(
    "fields", [{"JobID": "x"}, {"RestartCnt": ""}, {"exit_code": ""}, {"exit_code": "1:x"}, {"JobID": "warning\n5"}]
)
def test_an_answer_of_another_shape_is_an_error_of_the_command(commands: Commands, fields: dict[str, str]) -> None:
    commands.jobs(**fields)
    with pytest.raises(SlurmCommandError, match=r"squeue.*answered something unexpected"):
        commands.slurm.jobs()


def test_a_row_cut_short_is_an_error_of_the_command(commands: Commands) -> None:
    commands.table("squeue", list(ROW.values())[:5])
    with pytest.raises(SlurmCommandError, match="answered something unexpected"):
        commands.slurm.jobs()
    commands.table("sinfo", ["n1", "idle"])
    with pytest.raises(SlurmCommandError, match="answered something unexpected"):
        commands.slurm.nodes()


def test_no_rows_are_no_jobs(commands: Commands) -> None:
    commands.table("squeue")
    assert commands.slurm.jobs() == []
    assert commands.slurm.job("2_7") is None


def test_jobs_are_asked_for_with_the_given_filters(commands: Commands) -> None:
    commands.jobs()
    commands.slurm.jobs(["--user=$(id)", "--me"])
    arguments = commands.arguments("squeue")
    assert arguments[:-1] == ["-h", "-r", "-a", "--states=all", "--user=$(id)", "--me", "-O"]
    assert [entry.partition(":")[0] for entry in arguments[-1].split(",")] == list(JOB_FIELDS)


def test_one_job_is_asked_for_by_its_address(commands: Commands) -> None:
    commands.jobs()
    job = commands.slurm.job("2_0")
    assert job is not None
    assert commands.arguments("squeue")[4:6] == ["-j", "2_0"]


def test_a_forgotten_job_is_none_and_another_failure_is_not(commands: Commands) -> None:
    commands.script("squeue", "#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n")
    assert commands.slurm.job("999") is None
    commands.script("squeue", "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(SlurmCommandError, match="failed with 1: slurm_load_jobs error: Unable to contact"):
        commands.slurm.job("999")


def test_the_nodes_of_a_job(commands: Commands) -> None:
    commands.answer("squeue", "COMPLETING n[1-2]\n")
    assert commands.slurm.job_nodes("2_0") == "n[1-2]"
    assert commands.arguments("squeue") == ["-h", "-t", "all", "-j", "2_0", "-o", "%T %N"]


def test_of_a_het_job_only_the_components_that_are_completing_have_nodes_in_epilog(commands: Commands) -> None:
    commands.answer("squeue", "COMPLETING n1\nFAILED n2\nCOMPLETING n[4-5]\nCOMPLETING \n")
    assert commands.slurm.job_nodes("5") == "n1,n[4-5]"


@pytest.mark.parametrize(("address", "excluded"), [("5+0", "n[7-9]"), ("5+1", ""), ("5+2", "n1")])
def test_the_exclusions_of_one_component(commands: Commands, address: str, excluded: str) -> None:
    commands.answer("squeue", "5+2 n1\n5+0 n[7-9]\n5+1 \n")
    assert commands.slurm.excluded_nodes(address) == excluded


def test_the_bare_id_of_a_het_job_names_its_leader(commands: Commands) -> None:
    rows = ({**ROW, "JobID": "6", "JobArrayID": "5+1"}, {**ROW, "JobID": "5", "JobArrayID": "5+0"})
    commands.table("squeue", *([row[name] for name in JOB_FIELDS] for row in rows))
    job, other = commands.slurm.job("5"), commands.slurm.job("5+1")
    assert job is not None
    assert other is not None
    assert (job.address, job.het_leader, other.raw_id, other.het_leader) == ("5+0", "5", 6, "5")


@pytest.mark.parametrize(("answer", "excluded"), [("12 n[7-9]\n", "n[7-9]"), ("12 \n", ""), ("12 (null)\n", "")])
def test_the_exclusions_of_a_job(commands: Commands, answer: str, excluded: str) -> None:
    commands.answer("squeue", answer)
    assert commands.slurm.excluded_nodes("12") == excluded
    assert commands.arguments("squeue") == ["-h", "-t", "all", "-j", "12", "-o", "%i %x"]


def test_a_node_in_two_partitions_is_one_node(commands: Commands) -> None:
    commands.nodes({}, {}, {"NodeList": "n2", "StateComplete": "idle", "Reason": "a\nb", "Comment": "none"})
    assert commands.slurm.nodes() == [node("n1", "idle+drain", "", ""), node("n2", "idle", "a\nb", "none")]
    assert commands.arguments("sinfo")[:-1] == ["-h", "-N", "-a", "-O"]


def test_named_nodes_alone_are_asked_for(commands: Commands) -> None:
    commands.nodes({})
    commands.slurm.nodes("n[1-2]")
    assert commands.arguments("sinfo")[:-1] == ["-h", "-N", "-a", "-n", "n[1-2]", "-O"]


@pytest.mark.parametrize(
    ("state", "down", "draining"),
    [
        ("idle", False, False),
        ("mixed", False, False),
        ("idle+not_responding", False, False),
        ("idle+drain", False, True),
        ("allocated+drain", False, True),
        ("idle+fail", False, True),
        ("down", True, True),
        ("down+drain", True, True),
    ],
)
def test_what_a_node_state_means(state: str, down: bool, draining: bool) -> None:
    record = node("n1", state)
    assert (record.down, record.draining) == (down, draining)


TEXT = 'it\'s "$(touch /tmp/x)"\n; rm -rf é\udcff'


def test_changes_are_argument_lists_that_no_shell_reads(commands: Commands) -> None:
    commands.answer("scontrol")
    commands.answer("scancel")
    slurm = commands.slurm
    slurm.drain_node("n1", TEXT)
    slurm.set_node_comment("n1", TEXT)
    slurm.requeue("2_0")
    slurm.cancel("2_0")
    slurm.update_job("2_0", JobUpdate("n[1-2]", TEXT, TEXT, start_now=True))
    assert commands.arguments("scancel") == ["2_0"]
    assert commands.arguments("scontrol") == [
        *("update", "NodeName=n1", "State=DRAIN", f"Reason={TEXT}"),
        *("update", "NodeName=n1", f"Comment={TEXT}"),
        *("requeue", "2_0"),
        *("update", "JobId=2_0", "ExcNodeList=n[1-2]", f"Comment={TEXT}", f"AdminComment={TEXT}", "StartTime=now"),
    ]


def test_a_field_that_is_not_to_change_is_not_named(commands: Commands) -> None:
    commands.answer("scontrol")
    commands.slurm.update_job("12", JobUpdate(start_now=True))
    commands.slurm.update_job("12", JobUpdate(comment=""))
    assert commands.arguments("scontrol") == ["update", "JobId=12", "StartTime=now", "update", "JobId=12", "Comment="]


def test_the_callers_environment_does_not_change_what_is_printed(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SQUEUE_FORMAT", "SQUEUE_FORMAT2", "SQUEUE_STATES", "SLURM_CLUSTERS", "SINFO_FORMAT", "LD_PRELOAD"):
        monkeypatch.setenv(name, "" if name == "LD_PRELOAD" else "wrong")
    monkeypatch.setenv("SLURM_CONF", "/etc/from/environment.conf")
    commands.jobs()
    commands.slurm.jobs()
    environment = {name: value for name, value in commands.environment("squeue").items() if name not in ("PWD", "_")}
    assert environment == {
        "PATH": "/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "SLURM_TIME_FORMAT": "%s",
        "SLURM_CONF": "/etc/from/environment.conf",
    }


def test_the_configured_cluster_wins_over_the_environment(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/from/environment.conf")
    commands.jobs()
    config = Config(slurm_bin=commands.directory, slurm_conf=Path("/etc/a.conf"), command_timeout=3)
    slurm = CommandLine.of(config)
    assert slurm.timeout == 3
    slurm.jobs()
    assert commands.environment("squeue")["SLURM_CONF"] == "/etc/a.conf"


def test_a_command_that_hangs_is_given_up(commands: Commands) -> None:
    commands.script("scontrol", "#!/bin/sh\nsleep 5\n")
    began = time.monotonic()
    with pytest.raises(SlurmCommandError, match=r"gave no answer within 0\.2 s.*Is slurmctld up"):
        CommandLine(commands.directory, timeout=0.2, tries=1).requeue("12")
    assert time.monotonic() - began < 3


COUNTING = """#!/bin/sh
echo asked >>"$0.asked"
[ "$(wc -l <"$0.asked")" -le {failures} ] || exit 0
echo '{says}' >&2
exit 1
"""


@pytest.mark.parametrize(
    ("says", "failures", "asked", "fails"),
    [
        ("slurm_update error: Unable to contact slurm controller (connect failure)", 1, 2, False),
        ("Unexpected message received for job 5", 2, 3, False),
        ("Unable to contact slurm controller", 9, 3, True),
        ("Invalid job id specified", 1, 1, True),
    ],
)
def test_only_a_busy_controller_is_asked_again(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, says: str, failures: int, asked: int, fails: bool
) -> None:
    monkeypatch.setattr("slurm_ft.slurm.cli.PAUSES", (0.0, 0.0))
    commands.script("scontrol", COUNTING.format(says=says, failures=failures))
    with pytest.raises(SlurmCommandError) if fails else nullcontext():
        commands.slurm.requeue("12")
    assert len((commands.directory / "scontrol.asked").read_text().splitlines()) == asked


def test_a_failure_says_what_slurm_said(commands: Commands) -> None:
    commands.script("scontrol", "#!/bin/sh\nprintf 'Invalid \\377 node\\n' >&2\nexit 3\n")
    with pytest.raises(SlurmCommandError) as caught:
        commands.slurm.drain_node("n1", "x" * 5000)
    assert "scontrol update NodeName=n1" in str(caught.value)
    assert str(caught.value).endswith("failed with 3: Invalid \udcff node")
    assert len(str(caught.value)) < 400


def test_a_missing_command_says_where_it_was_looked_for(commands: Commands) -> None:
    with pytest.raises(SlurmCommandError, match=r"could not start: .*No such file.*Set slurm_bin"):
        commands.slurm.cancel("12")


def test_a_command_gets_no_input(commands: Commands) -> None:
    commands.script("squeue", "#!/bin/sh\ncat\n")
    read, write = os.pipe()
    stdin = os.dup(0)
    os.dup2(read, 0)
    try:
        assert commands.slurm.job_nodes("12") == ""
    finally:
        os.dup2(stdin, 0)
        for descriptor in (read, write, stdin):
            os.close(descriptor)

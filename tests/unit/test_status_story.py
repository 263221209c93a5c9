"""One job's page: `slurm-ft status JOB`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from fake_slurm import node

from slurm_ft.config import Config
from slurm_ft.failover import ledger, node_record
from slurm_ft.model import Attempt, Domain, JobState, Ledger, NodeVerdict
from slurm_ft.slurm.protocol import JobRecord
from slurm_ft.status import outlook, timeline
from slurm_ft.status.story import story, whole_jobs, worth_telling
from slurm_ft.status.table import Screen
from slurm_ft.status.view import JobView, views

NOW = 5000.0
FIRST = Attempt(0, "n1", 1000.0, 2000.0, Domain.HARDWARE, "xid79", ("n1",), counted=True, text="NVRM: Xid 79", step=-1)
PREEMPTED = Attempt(
    1, "n2", 2010.0, 2500.0, Domain.UNKNOWN, "requeued_elsewhere", (), counted=False, step=40, saved=1900
)
SECOND = Attempt(2, "n3", 2600.0, 3000.0, Domain.HARDWARE, "xid48", ("n3",), counted=True, step=40, saved=1900)


@pytest.fixture
def view(job_record: JobRecord) -> Callable[..., JobView]:
    """The view of a job with these attempts behind it."""

    def of(*attempts: Attempt, faults: tuple[NodeVerdict, ...] = (), **fields: object) -> JobView:
        nodes = [node(fault.node, "idle+drain", node_record.add("", fault), "") for fault in faults]
        history = Ledger("r", attempts, tuple(name for one in attempts for name in one.bad_nodes))
        given = {"admin_comment": ledger.write("", history), "restarts": len(attempts), **fields}
        (one,) = views([replace(job_record, **given)], nodes, Config())  # type: ignore[arg-type]
        return one

    return of


RUNS = {"state": "RUNNING", "nodes": "n4", "started": 3004.0, "reason": ""}
RESUMED = {"comment": "[slurm_ft n=2/3] [slurm_ft.resume step=90 attempt=3 saved=2900]"}


def test_the_page_tells_every_attempt_what_it_cost_and_what_comes_next(view: Callable[..., JobView]) -> None:
    text = story(view(FIRST, PREEMPTED, SECOND, **RUNS, **RESUMED), NOW).splitlines()
    started = [line.strip().partition(":")[0] for line in text if "restart " in line]
    assert text[0] == "job 12 train of alice: Running; 2 of 3 failovers spent; excluded n[1,3]"
    assert started == [
        "attempt 1/4, restart 0",
        "attempt 2/4, restart 1",
        "attempt 2/4, restart 2",
        "attempt 3/4, restart 3",
    ]
    assert re.fullmatch(r".*: on n1, \S+T(\S+) - \S+:\S+ \(16:40\)", text[1])
    assert text[2:6] == [
        "    started from scratch",
        "    hardware xid79, excluded n1 (failover)",
        "      NVRM: Xid 79",
        "    lost: 0:10 until the next start, 1:40 of work since the checkpoint",
    ]
    assert text[-3:] == [
        "lost in all: 1:54 between attempts, 11:30 of work",
        "next: runs to its end; if its hardware fails, it starts again elsewhere (1 failover left)",
        "look closer: slurm-ft explain 12; slurm-ft logs 12",
    ]


def test_an_attempt_that_saved_nothing_loses_all_of_its_work_and_no_more(view: Callable[..., JobView]) -> None:
    """The preempted attempt and the one after it start from the same checkpoint, which is older than both."""
    laps = timeline.laps(view(FIRST, PREEMPTED, SECOND, **RUNS, **RESUMED), NOW)
    assert [lap.work_lost for lap in laps] == [100.0, 490.0, 100.0, None]
    assert [lap.waited for lap in laps] == [10.0, 100.0, 4.0, None]


def test_what_a_restart_from_scratch_loses_is_the_whole_attempt(view: Callable[..., JobView]) -> None:
    again = {"comment": "[slurm_ft] [slurm_ft.resume step=none attempt=1]"}
    assert timeline.laps(view(FIRST, **RUNS, **again), NOW)[0].work_lost == 1000.0


def test_nothing_is_said_about_the_cost_of_an_end_whose_next_attempt_is_not_known(view: Callable[..., JobView]) -> None:
    laps = timeline.laps(view(FIRST, SECOND, **RUNS, restarts=3), NOW)
    assert [(lap.restart, lap.waited) for lap in laps] == [(0, None), (2, 4.0), (3, None)]


def test_a_job_that_waits_loses_time_until_now_and_its_work_is_not_known_yet(view: Callable[..., JobView]) -> None:
    """Slurm gives a waiting job the start that it expects, and an end a time limit later."""
    waits = {"state": "PENDING", "reason": "Resources", "nodes": "", "started": 9000.0, "ended": 9900.0}
    one = view(FIRST, **waits)
    text = story(one, 2060.0)
    assert "restart 1: waiting (Resources)" in text
    assert "lost: 1:00 until the next start\n" in text
    assert "next: starts again without n1 as soon as Slurm has nodes for it (Resources)" in text
    assert timeline.elapsed(one.job, NOW) is None


def test_an_attempt_of_which_little_is_known_says_so(view: Callable[..., JobView]) -> None:
    unknown = Attempt(0, "", None, 2500.0, Domain.UNKNOWN, "requeued_elsewhere", (), counted=False)
    line = story(view(unknown, **RUNS), NOW).splitlines()[1]
    assert "on ?, ? - " in line


def test_a_step_without_progress_and_an_alert_are_told_of_the_present_attempt_only(
    view: Callable[..., JobView],
) -> None:
    tag = "[slurm_ft.resume step=20 attempt=3 since=1 alert=same_step saved=2974]"
    text = story(view(state="RUNNING", restarts=3, started=3004.0, comment=tag), NOW)
    assert "started from step 20, saved 30s before, as the 2 attempt(s) before it; ALERT same_step" in text
    assert "started from" not in story(view(state="RUNNING", restarts=4, comment=tag), NOW)


def test_the_verdicts_on_the_present_attempt_are_there_with_their_lines(
    view: Callable[..., JobView], fault: NodeVerdict
) -> None:
    text = story(view(faults=(fault,), state="FAILED", nodes="n1"), NOW)
    assert "    hardware xid79" in text
    assert f"      n1: {fault.text}" in text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({**RUNS}, "3 failovers left"),
        ({**RUNS, "comment": "[slurm_ft n=3/3]"}, "no failover is left"),
        ({**RUNS, "comment": ""}, "did not ask for failover"),
        ({**RUNS, "requeue": False}, "cannot be requeued"),
        ({"state": "PENDING", "reason": "Priority"}, "starts as soon as Slurm has nodes for it (Priority)"),
        ({"state": "COMPLETING"}, "its nodes are being judged"),
        ({"state": "FAILED"}, "nothing points at the hardware"),
        ({"state": "REQUEUE_HOLD"}, "scancel or release it"),
        ({"state": "FAILED", "comment": ""}, "[slurm_ft] in its comment"),
        ({"state": "COMPLETED"}, "nothing: it has ended"),
        ({"state": "TIMEOUT"}, "its time was up"),
        ({"state": "PREEMPTED"}, "spends no failover"),
    ],
)
def test_what_happens_next(view: Callable[..., JobView], fields: dict[str, object], words: str) -> None:
    assert words in outlook.next_of(view(**fields))


def test_what_happens_next_when_the_hardware_failed_for_good(view: Callable[..., JobView], fault: NodeVerdict) -> None:
    spent = view(faults=(fault,), state="FAILED", comment="[slurm_ft n=3/3]")
    held_back = view(faults=(fault,), state="FAILED", comment="[slurm_ft]")
    image = view(faults=(replace(fault, domain=Domain.APPLICATION, cause="image_pull"),), state="FAILED")
    assert "3 of 3 failovers are spent" in outlook.next_of(spent)
    assert "names the rule" in outlook.next_of(held_back)
    assert image.state is JobState.INTERNAL_ERROR  # such a record stands in a node's Comment, not in its Reason
    assert "would not fail over now: failover is paused" in outlook.next_of(view(**RUNS), "failover is paused (root)")


def test_every_state_has_something_to_say_about_what_comes_next(view: Callable[..., JobView]) -> None:
    for state in JobState:
        assert outlook.next_of(replace(view(), state=state))


def test_a_het_job_is_one_story_with_the_nodes_of_all_its_components(job_record: JobRecord) -> None:
    parts = [
        replace(job_record, raw_id=20 + at, address=f"20+{at}", nodes=f"n{at + 1}", state="RUNNING", node_count=1)
        for at in (1, 0)
    ]
    other = replace(job_record, raw_id=9, address="9")
    whole, alone = whole_jobs(views([*parts, other], [], Config()))
    assert (whole.job.address, whole.job.raw_id, whole.job.nodes, whole.job.node_count) == ("20", 20, "n[1-2]", 2)
    assert alone.job == other


def test_of_an_array_only_tasks_with_news_have_a_story(view: Callable[..., JobView]) -> None:
    assert not worth_telling(view(**RUNS))
    assert worth_telling(view(FIRST, **RUNS))
    assert worth_telling(view(state="FAILED"))


def test_on_a_narrow_terminal_lines_go_on_further_in_and_never_beyond_its_edge(view: Callable[..., JobView]) -> None:
    page = story(view(FIRST, PREEMPTED, SECOND, **RUNS, **RESUMED, name="x" * 90), NOW, screen=Screen(60))
    lines = page.splitlines()
    assert max(map(len, lines)) <= 60
    assert all(word in page.replace("\n", " ") for word in ("(1 failover", "excluded n[1,3]"))


def test_a_comment_or_a_name_cannot_forge_a_command_to_copy(view: Callable[..., JobView]) -> None:
    assert outlook.look_closer(view(address="12; rm -rf ~")) == "slurm-ft explain 12; slurm-ft logs 12"

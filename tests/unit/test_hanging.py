"""Whether a job that hangs on a broken GPU is to be ended: the controller's own policy, asked beforehand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_slurm import FakeSlurm

from slurm_ft.config import Config, OptIn
from slurm_ft.failover import actions, ledger
from slurm_ft.failover.hanging import decide_hanging
from slurm_ft.failover.restraint import Surroundings
from slurm_ft.model import Action, Attempt, Domain, JobKey, JobState, Ledger, NodeVerdict
from slurm_ft.slurm.protocol import JobRecord

KEY = JobKey(12, "12", 0)


@pytest.fixture
def job(job_record: JobRecord) -> JobRecord:
    return replace(job_record, state="RUNNING", nodes="n1", reason="", ended=None)


def spent(count: int) -> str:
    attempts = tuple(
        Attempt(no, "n9", None, 1.0, Domain.HARDWARE, "xid79", ("n9",), counted=True) for no in range(count)
    )
    return ledger.write("", Ledger("r", attempts))


def test_a_job_that_would_be_requeued_is_ended(job: JobRecord, fault: NodeVerdict) -> None:
    decision = decide_hanging(KEY, job, [fault], Surroundings((), Config(), 2001.0))
    assert (decision.action, decision.exclude, decision.count) == (Action.REQUEUE, ("n1",), 1)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"comment": "mine"}, "not_opted_in"),
        ({"requeue": False}, "not_requeueable"),
        ({"batch": False}, "not_requeueable"),
        ({"comment": "[slurm_ft limit=0]"}, "limit_reached"),
        ({"comment": "[slurm_ft n=3/3]"}, "limit_reached"),
        ({"admin_comment": spent(3)}, "limit_reached"),
    ],
)
def test_a_job_that_would_not_be_requeued_is_left(
    job: JobRecord, fault: NodeVerdict, fields: dict[str, object], rule: str
) -> None:
    decision = decide_hanging(KEY, replace(job, **fields), [fault], Surroundings((), Config(), 2001.0))  # type: ignore[arg-type]
    assert (decision.action, decision.rule) == (Action.NONE, rule)


def test_where_all_jobs_fail_over_none_needs_a_tag(job: JobRecord, fault: NodeVerdict) -> None:
    decision = decide_hanging(
        KEY, replace(job, comment=""), [fault], Surroundings((), Config(opt_in=OptIn.ALL), 2001.0)
    )
    assert decision.action is Action.REQUEUE


def test_a_job_whose_nodes_all_blame_themselves_is_left(job: JobRecord, fault: NodeVerdict) -> None:
    verdicts = [fault, replace(fault, node="n2")]
    decision = decide_hanging(KEY, replace(job, nodes="n[1-2]"), verdicts, Surroundings((), Config(), 2001.0))
    assert (decision.action, decision.state) == (Action.NONE, JobState.INTERNAL_ERROR)


def test_a_running_attempt_is_killed(job: JobRecord) -> None:
    slurm = FakeSlurm.of(job)
    assert actions.end_hanging(slurm, KEY) == "killed its batch script"
    assert slurm.changes == [("kill_batch_script", "12")]


@pytest.mark.parametrize("fields", [{"restarts": 1}, {"state": "COMPLETING"}, {"state": "CANCELLED"}])
def test_nothing_but_that_attempt_is_killed(job: JobRecord, fields: dict[str, object]) -> None:
    slurm = FakeSlurm.of(replace(job, **fields))  # type: ignore[arg-type]
    actions.end_hanging(slurm, KEY)
    assert slurm.changes == []


def test_a_forgotten_job_is_not_killed() -> None:
    slurm = FakeSlurm()
    actions.end_hanging(slurm, KEY)
    assert slurm.changes == []

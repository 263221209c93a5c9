"""Exclusions end when somebody has returned the node, and not before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft.config import Config, Mode
from slurm_ft.controller import carry_out, reconcile
from slurm_ft.controller.site import Site
from slurm_ft.failover import comment_tag, ledger
from slurm_ft.failover.policy import decide
from slurm_ft.failover.progress import Progress
from slurm_ft.journal_entry import Entry, Stage, from_json, to_json
from slurm_ft.log import open_log
from slurm_ft.model import Attempt, Domain, JobEnd, Ledger, NodeVerdict
from slurm_ft.slurm.protocol import JobRecord


def attempt(number: int, bad: str, *, drained: bool = True) -> Attempt:
    return Attempt(
        number, bad, None, 0.0, Domain.HARDWARE, "xid79", (bad,), counted=True, drained=(bad,) if drained else ()
    )


BEFORE = Ledger("run", (attempt(0, "n1"), attempt(1, "n2", drained=False)), ("n1", "n2"))


def test_a_drained_node_that_takes_jobs_again_is_forgiven_and_one_that_was_never_drained_is_not() -> None:
    assert ledger.forgive(BEFORE, {"n3"}).excluded == ("n1", "n2")
    forgiven = ledger.forgive(BEFORE, {"n1", "n2", "n3"})
    assert forgiven.excluded == ("n2",)
    assert forgiven.attempts == BEFORE.attempts
    assert ledger.read(ledger.write("", forgiven)) == forgiven


def test_what_counts_is_the_last_time_that_it_was_excluded() -> None:
    again = replace(BEFORE, attempts=(*BEFORE.attempts, attempt(2, "n1", drained=False)))
    assert "n1" in ledger.forgive(again, {"n1"}).excluded


def test_a_decision_keeps_which_of_its_nodes_are_drained(job_end: JobEnd, fault: NodeVerdict) -> None:
    decision = decide(replace(job_end, drained_nodes=("n1",)), [fault], 0)
    assert (decision.exclude, decision.drained) == (("n1",), ("n1",))
    entry = Entry(2001.0, Stage.DECIDED, job_end.key, decision=replace(decision, step=40))
    assert from_json(to_json(entry)) == entry
    assert (entry.attempt().drained, entry.attempt().step) == (("n1",), 40)


@pytest.fixture
def slurm(job_record: JobRecord) -> FakeSlurm:
    pending = replace(
        job_record,
        state="PENDING",
        restarts=2,
        ended=None,
        comment="[slurm_ft n=2/3 ex=n1,n2 cause=xid79]",
        admin_comment=ledger.write("", BEFORE),
    )
    fake = FakeSlurm.of(pending, node("n1"), node("n2"), node("n3", "idle+drain"))
    fake.excluded["12"] = "n[1-2],n9"
    return fake


@pytest.fixture
def site(slurm: FakeSlurm, tmp_path: Path) -> Site:
    return Site(
        Config(mode=Mode.ACT, state_dir=tmp_path, log_file=tmp_path / "log"),
        slurm,
        open_log(Config(log_file=tmp_path / "log"), "t"),
        "c",
    )


def excluded(slurm: FakeSlurm) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """For Slurm, in the tag, in the ledger."""
    job = slurm.job_records["12"]
    tag, history = comment_tag.read(job.comment), ledger.read(job.admin_comment)
    assert tag is not None
    assert history is not None
    assert (tag.count, history.count) == (2, 2), "what was spent stays spent"
    return slurm.excluded["12"], tag.excluded, history.excluded


def test_reconcile_lets_a_pending_job_have_a_returned_node_again(site: Site, slurm: FakeSlurm) -> None:
    assert reconcile.reconcile_all(site) == ["job 12: not excluded any more, returned to service: n1"]
    assert excluded(slurm) == ("n[2,9]", ("n2",), ("n2",))
    assert reconcile.reconcile_all(site) == []


def test_while_the_node_is_drained_the_exclusion_stays(site: Site, slurm: FakeSlurm) -> None:
    slurm.set_node("n1", state="idle+drain")
    assert reconcile.reconcile_all(site) == []
    assert excluded(slurm)[0] == "n[1-2],n9"


def test_a_running_job_keeps_its_exclusions_until_its_next_failover(
    site: Site, slurm: FakeSlurm, job_end: JobEnd, fault: NodeVerdict
) -> None:
    slurm.set_job("12", state="RUNNING", nodes="n4")
    assert reconcile.reconcile_all(site) == []
    end = replace(job_end, key=replace(job_end.key, attempt=2), nodes="n4", node_names=("n4",), drained_nodes=("n4",))
    decision = decide(end, [replace(fault, node="n4", attempt=2)], 2)
    entry = Entry(site.now(), Stage.DECIDED, end.key, "c", "run", 900.0, "act", nodes="n4", decision=decision)
    slurm.set_job("12", state="COMPLETING", ended=2000.0)
    carry_out.carry_out(site, Progress(site.write(entry)))
    known = ledger.read(slurm.job_records["12"].admin_comment)
    assert known is not None
    assert (known.count, known.excluded) == (3, ("n2", "n4"))
    assert slurm.excluded["12"] == "n[2,4,9]"

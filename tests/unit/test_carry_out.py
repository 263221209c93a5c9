"""Carrying out a decision, step by step, against a Slurm that refuses what the real one refuses."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft import journal
from slurm_ft.config import Config, Mode
from slurm_ft.controller import carry_out
from slurm_ft.controller.job_lock import job_lock
from slurm_ft.controller.site import Site
from slurm_ft.failover import ledger
from slurm_ft.failover.policy import decide
from slurm_ft.failover.progress import Progress
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.log import open_log
from slurm_ft.model import Action, JobEnd, NodeVerdict
from slurm_ft.slurm.protocol import JobRecord, JobUpdate


@pytest.fixture
def slurm(job_record: JobRecord) -> FakeSlurm:
    fake = FakeSlurm.of(job_record, node("n1"), node("n2"))
    fake.now = time.time()
    return fake


@pytest.fixture
def site(slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(carry_out.time, "sleep", lambda _: None)
    config = Config(mode=Mode.ACT, state_dir=tmp_path, log_file=tmp_path / "log", node_reuse_delay=2)
    return Site(config, slurm, open_log(config, "test"), "cluster")


@pytest.fixture
def decided(site: Site, job_end: JobEnd, fault: NodeVerdict) -> Progress:
    """The failover of job 12, whose only node is bad."""
    end = replace(job_end, nodes="n1", node_names=("n1",))
    entry = Entry(
        site.now(), Stage.DECIDED, end.key, "cluster", "run", 900.0, "act", nodes="n1", decision=decide(end, [fault], 0)
    )
    return Progress(site.write(entry))


def stages(site: Site) -> list[str]:
    return [entry.stage.value for entry in journal.entries(site.config.state_dir)]


def leave_completing(slurm: FakeSlurm, after: int) -> Callable[[], None]:
    """The job leaves COMPLETING after so many looks."""
    looks = iter(range(after))

    def look() -> None:
        if next(looks, None) is None and slurm.job_records["12"].state == "COMPLETING":
            slurm.set_job("12", state="PENDING", submitted=slurm.now + 1)

    return look


def test_a_failover_goes_as_far_as_completing_allows(site: Site, slurm: FakeSlurm, decided: Progress) -> None:
    after = carry_out.carry_out(site, decided)
    assert stages(site) == ["decided", "requeued", "recorded"]
    assert after.open
    assert [call[0] for call in slurm.changes] == ["requeue", "update_job"]


def test_carried_out_again_nothing_is_asked_for(site: Site, slurm: FakeSlurm, decided: Progress) -> None:
    after = carry_out.carry_out(site, decided)
    changes = list(slurm.changes)
    carry_out.carry_out(site, after)
    assert slurm.changes == changes


def test_the_rest_is_done_when_the_job_has_left_completing(site: Site, slurm: FakeSlurm, decided: Progress) -> None:
    slurm.before["job"] = leave_completing(slurm, 5)
    assert not carry_out.finish(site, decided).open
    assert stages(site) == ["decided", "requeued", "recorded", "released"]
    assert slurm.changes[-1] == ("update_job", "12", JobUpdate(start_now=True))
    assert journal.entries(site.config.state_dir)[-1].submitted == slurm.now + 1


def test_a_job_that_may_return_to_a_node_is_not_released_at_once(
    site: Site, slurm: FakeSlurm, decided: Progress
) -> None:
    surviving = replace(decided, decided=replace(decided.decided, nodes="n[1-2]"))
    slurm.before["job"] = leave_completing(slurm, 2)
    carry_out.carry_out(site, surviving)
    after = carry_out.carry_out(site, replace(surviving, later=tuple(journal.entries(site.config.state_dir)[1:])))
    assert stages(site) == ["decided", "requeued", "recorded"]
    long_ago = tuple(replace(entry, at=entry.at - 3) for entry in after.later)
    carry_out.carry_out(site, replace(after, later=long_ago))
    assert stages(site)[-1] == "released"


def test_a_het_job_is_released_when_all_its_components_have_left_completing(
    site: Site, slurm: FakeSlurm, decided: Progress
) -> None:
    leader = replace(slurm.job_records.pop("12"), address="12+0")
    slurm.job_records = {"12": leader, "12+0": leader, "12+1": replace(leader, raw_id=13, address="12+1", ended=None)}
    slurm.set_job("12", state="PENDING", restarts=1, submitted=decided.decided.at, ended=None)
    done = (replace(decided.decided, stage=stage, decision=None) for stage in (Stage.REQUEUED, Stage.RECORDED))
    recorded = replace(decided, later=tuple(done))
    carry_out.carry_out(site, recorded)
    assert stages(site) == ["decided"]
    slurm.set_job("12+1", state="PENDING")
    carry_out.carry_out(site, recorded)
    assert stages(site) == ["decided", "released"]


def test_a_refused_requeue_changes_nothing_else_and_stays_open(site: Site, slurm: FakeSlurm, decided: Progress) -> None:
    slurm.refused.add("requeue")
    after = carry_out.carry_out(site, decided)
    assert [call[0] for call in slurm.changes] == ["requeue"]
    assert after.open
    assert stages(site) == ["decided", "failed"]
    assert "ALERT" in (site.config.state_dir / "log").read_text()


def test_what_slurm_says_at_each_try_is_written_once(site: Site, slurm: FakeSlurm, decided: Progress) -> None:
    slurm.refused.add("requeue")
    after = carry_out.carry_out(site, decided)
    carry_out.carry_out(site, after)
    assert stages(site) == ["decided", "failed"]


def test_a_refused_record_is_tried_again_until_slurm_takes_it(site: Site, slurm: FakeSlurm, decided: Progress) -> None:
    """As after a --no-kill job lost a node: no update is taken while it is COMPLETING (measured on 22.05)."""
    slurm.before["job"] = leave_completing(slurm, 4)
    slurm.refuses_update = lambda _: slurm.job_records["12"].state == "COMPLETING"
    carry_out.finish(site, decided)
    assert stages(site) == ["decided", "requeued", "failed", "recorded", "released"]
    assert slurm.excluded["12"] == "n1"


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED", "TIMEOUT", "PENDING"])
def test_a_job_that_left_completing_meanwhile_is_not_revived(
    site: Site, slurm: FakeSlurm, decided: Progress, state: str
) -> None:
    slurm.set_job("12", state=state)
    assert not carry_out.carry_out(site, decided).open
    assert slurm.changes == []
    assert state in journal.entries(site.config.state_dir)[-1].detail


def test_a_controller_that_has_lost_the_end_is_waited_for(site: Site, slurm: FakeSlurm, decided: Progress) -> None:
    """A backup took over from an older saved state: the job runs for it, until it finds the node without it."""
    slurm.set_job("12", state="RUNNING", ended=None)
    at = carry_out.carry_out(site, decided)
    assert at.open
    assert slurm.changes == []
    slurm.set_job("12", state="COMPLETING", restarts=1)
    assert carry_out.carry_out(site, at).has(Stage.RECORDED)


def test_a_job_that_shows_failed_by_now_is_requeued_and_dependents_are_told(
    site: Site, slurm: FakeSlurm, decided: Progress
) -> None:
    slurm.set_job("12", state="FAILED")
    carry_out.carry_out(site, decided)
    assert stages(site) == ["decided", "requeued", "recorded", "released"]
    assert "afterok" in journal.entries(site.config.state_dir)[1].detail


def test_a_job_that_failed_too_long_ago_is_left_failed(site: Site, slurm: FakeSlurm, decided: Progress) -> None:
    slurm.set_job("12", state="FAILED")
    old = replace(decided, decided=replace(decided.decided, at=site.now() - 3601))
    carry_out.carry_out(site, old)
    assert slurm.changes == []


@pytest.mark.parametrize("state", ["COMPLETING", "PENDING", "REQUEUE_HOLD"])
def test_a_job_that_somebody_else_requeued_is_excluded_and_counted_all_the_same(
    site: Site, slurm: FakeSlurm, decided: Progress, state: str
) -> None:
    slurm.set_job("12", state=state, restarts=1, ended=None)
    carry_out.carry_out(site, decided)
    assert slurm.changes[0][0] == "update_job"
    assert slurm.excluded["12"] == "n1"


def test_a_job_that_runs_again_is_counted_now_and_excluded_when_it_is_pending(
    site: Site, slurm: FakeSlurm, decided: Progress
) -> None:
    slurm.set_job("12", state="RUNNING", restarts=1, ended=None)
    after = carry_out.carry_out(site, decided)
    assert stages(site) == ["decided", "requeued", "counted"]
    assert "n=1/3" in slurm.job_records["12"].comment
    assert slurm.excluded == {}
    slurm.set_job("12", state="COMPLETING", restarts=2)  # preempted
    carry_out.carry_out(site, after)
    assert stages(site)[2:4] == ["counted", "recorded"]
    assert slurm.excluded["12"] == "n1"
    assert "n=1/3" in slurm.job_records["12"].comment


def test_the_record_waits_while_the_next_attempt_is_judged(site: Site, slurm: FakeSlurm, decided: Progress) -> None:
    slurm.set_job("12", restarts=1)  # COMPLETING with an end
    assert carry_out.carry_out(site, decided).open
    assert slurm.changes == []


def test_over_the_limit_the_requeued_job_is_recorded_and_cancelled(
    site: Site, slurm: FakeSlurm, decided: Progress
) -> None:
    slurm.set_job("12", restarts=1, ended=None)
    assert decided.decided.decision is not None
    decision = replace(decided.decided.decision, action=Action.CANCEL, exclude=())
    cancel = replace(decided.decided, run="of its own", decision=decision)
    carry_out.carry_out(site, Progress(cancel))
    assert [call[0] for call in slurm.changes] == ["update_job", "cancel"]
    history = ledger.read(slurm.job_records["12"].admin_comment)
    assert history is not None
    assert history.count == 0


def test_over_the_limit_a_job_that_runs_again_already_is_left_running(
    site: Site, slurm: FakeSlurm, decided: Progress
) -> None:
    slurm.set_job("12", state="RUNNING", restarts=1, ended=None)
    assert decided.decided.decision is not None
    cancel = replace(decided.decided, decision=replace(decided.decided.decision, action=Action.CANCEL))
    assert not carry_out.carry_out(site, Progress(cancel)).open
    assert slurm.changes == []


def test_another_job_of_the_same_id_is_left_alone(site: Site, slurm: FakeSlurm, decided: Progress) -> None:
    slurm.set_job("12", state="FAILED", submitted=1900.0)
    carry_out.carry_out(site, decided)
    assert slurm.changes == []
    assert "another job" in journal.entries(site.config.state_dir)[-1].detail


def test_a_forgotten_job_is_closed(site: Site, slurm: FakeSlurm, decided: Progress) -> None:
    slurm.job_records.clear()
    assert not carry_out.carry_out(site, decided).open


def test_a_comment_without_room_is_noted(site: Site, slurm: FakeSlurm, decided: Progress) -> None:
    slurm.set_job("12", comment="x" * 1024)
    carry_out.carry_out(site, decided)
    assert "AdminComment alone" in journal.entries(site.config.state_dir)[-1].detail


def test_finishing_gives_up_in_time(
    site: Site, slurm: FakeSlurm, decided: Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carry_out, "FINISH_TIMEOUT", 0.05)
    assert carry_out.finish(site, decided).open
    assert stages(site) == ["decided", "requeued", "recorded"]


def test_while_another_process_has_the_job_nothing_is_done(
    site: Site, slurm: FakeSlurm, decided: Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carry_out, "FINISH_TIMEOUT", 0.05)
    with job_lock(site.config.state_dir, 12, 0):
        carry_out.finish(site, decided)
    assert slurm.changes == []


def test_an_expedited_job_over_the_limit_is_held_before_it_can_start_again(
    site: Site, slurm: FakeSlurm, job_end: JobEnd, fault: NodeVerdict
) -> None:
    end = replace(job_end, nodes="n1", node_names=("n1",), expedited=True)
    decision = decide(end, [fault], 3)
    entry = Entry(site.now(), Stage.DECIDED, end.key, "cluster", "run", 900.0, "act", nodes="n1", decision=decision)
    carry_out.carry_out(site, Progress(site.write(entry)))
    assert [call[0] for call in slurm.changes] == ["requeue_held", "update_job", "cancel"]
    assert stages(site) == ["decided", "requeued", "recorded", "closed"]


def test_slurms_own_hold_of_an_expedited_job_is_lifted_and_nobody_elses(
    site: Site, slurm: FakeSlurm, job_end: JobEnd, fault: NodeVerdict
) -> None:
    end = replace(job_end, nodes="n1", node_names=("n1",), expedited=True)
    for address, expedited in (("12", True), ("12", False)):
        slurm.calls.clear()
        decision = decide(replace(end, expedited=expedited), [fault], 0)
        entry = Entry(site.now(), Stage.DECIDED, end.key, "cluster", "run", 900.0, "act", nodes="n1", decision=decision)
        slurm.set_job(address, state="REQUEUE_HOLD", restarts=end.key.attempt + 1, ended=None, submitted=site.now())
        carry_out.carry_out(site, Progress(site.write(entry)))
        assert (("release_hold", "12") in slurm.changes) is expedited

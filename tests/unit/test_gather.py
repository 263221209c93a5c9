from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from fake_slurm import FakeSlurm, node

from slurm_ft.config import Config, OptIn
from slurm_ft.controller import gather as gathering
from slurm_ft.controller.gather import Gathered, ended_attempt, gather, wait_for_node_epilogs, wait_out_epilogs
from slurm_ft.failover import node_record
from slurm_ft.model import JobKey, NodeVerdict
from slurm_ft.slurm.protocol import JobRecord

KEY = JobKey(12, "12", 0)
ENVIRON = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_EXIT_CODE2": "1:0"}


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(gathering.time, "sleep", fake.sleep)
    return fake


@pytest.fixture
def slurm(job_record: JobRecord) -> FakeSlurm:
    return FakeSlurm.of(job_record, node("n1", "idle", "", ""), node("n2", "idle", "", ""))


class TestWaitForNodeEpilogs:
    def test_does_not_wait_when_all_have_ended(self, slurm: FakeSlurm, clock: Clock) -> None:
        assert wait_for_node_epilogs(slurm, "12", 60, clock) == ()
        assert clock.slept == []

    def test_names_those_that_did_not_end_in_time(self, slurm: FakeSlurm, clock: Clock) -> None:
        slurm.set_job("12", nodes="n[1-2]")
        assert wait_for_node_epilogs(slurm, "12", 60, clock) == ("n1", "n2")
        assert clock.now == pytest.approx(60)

    def test_ends_as_soon_as_the_last_epilog_has(self, slurm: FakeSlurm, clock: Clock) -> None:
        slurm.set_job("12", nodes="n2")
        slurm.before["job_nodes"] = lambda: slurm.set_job("12", nodes="n2" if clock.now < 5 else "")
        assert wait_for_node_epilogs(slurm, "12", 60, clock) == ()
        assert 5 <= clock.now < 6

    def test_a_dead_node_is_not_waited_for(self, slurm: FakeSlurm, clock: Clock) -> None:
        slurm.set_job("12", nodes="n2")
        slurm.set_node("n2", state="down")
        assert wait_for_node_epilogs(slurm, "12", 60, clock) == ()
        assert clock.now < 4

    def test_a_living_node_beside_a_dead_one_is_waited_for(self, slurm: FakeSlurm, clock: Clock) -> None:
        slurm.set_job("12", nodes="n[1-2]")
        slurm.set_node("n2", state="down")
        assert wait_for_node_epilogs(slurm, "12", 10, clock) == ("n1", "n2")

    def test_a_controller_that_does_not_answer_for_a_while_is_asked_again(self, slurm: FakeSlurm, clock: Clock) -> None:
        """Silence is no sign that the nodes have ended, or died."""
        slurm.set_job("12", nodes="n2")
        slurm.refused.add("job_nodes")

        def answer_later() -> None:
            if clock.now > 20:
                slurm.refused.discard("job_nodes")

        slurm.before["job_nodes"] = answer_later
        assert wait_for_node_epilogs(slurm, "12", 60, clock) == ("n2",)
        assert clock.now == pytest.approx(60)

    def test_a_controller_that_never_answers_ends_the_wait_at_the_bound(self, slurm: FakeSlurm, clock: Clock) -> None:
        slurm.refused |= {"job_nodes", "nodes"}
        assert wait_for_node_epilogs(slurm, "12", 10, clock) == ("?",)
        assert clock.now == pytest.approx(10)

    def test_nodes_whose_state_slurm_does_not_tell_are_not_taken_for_dead(self, slurm: FakeSlurm, clock: Clock) -> None:
        slurm.set_job("12", nodes="n[8-9]")
        assert wait_for_node_epilogs(slurm, "12", 10, clock) == ("n8", "n9")

    def test_a_bound_of_zero_looks_once(self, slurm: FakeSlurm, clock: Clock) -> None:
        slurm.set_job("12", nodes="n1")
        assert wait_for_node_epilogs(slurm, "12", 0, clock) == ("n1",)
        assert clock.now == 0


@pytest.mark.usefixtures("clock")
def look_and_gather(slurm: FakeSlurm, config: Config, environ: Mapping[str, str]) -> Gathered | None:
    """As the hook does."""
    ended = ended_attempt(slurm, KEY)
    return ended and gather(slurm, config, environ, wait_out_epilogs(slurm, config, ended), 2001.0)


class TestGather:
    def test_reads_what_every_node_left(self, slurm: FakeSlurm, fault: NodeVerdict) -> None:
        slurm.set_node("n1", state="idle+drain", reason=node_record.add("", fault))
        noted = replace(fault, node="n2", cause="xid48")
        slurm.set_node("n2", comment=node_record.add("rack 7", noted))
        gathered = look_and_gather(slurm, Config(), ENVIRON)
        assert gathered is not None
        assert gathered.verdicts == (fault, noted)
        end = gathered.end
        assert (end.nodes, end.node_names, end.down_nodes, end.silent_nodes) == ("n[1-2]", ("n1", "n2"), (), ())
        assert (str(end.exit), end.reason, end.started, end.ended) == ("1:0", "NonZeroExitCode", 1000.0, 2001.0)
        assert (end.opted_in, end.requeueable, end.limit, end.restarts_now) == (True, True, 3, 0)

    def test_a_forgotten_job_is_none(self, slurm: FakeSlurm) -> None:
        slurm.job_records.clear()
        assert look_and_gather(slurm, Config(), ENVIRON) is None

    def test_a_job_forgotten_during_the_wait_is_judged_as_it_was(self, slurm: FakeSlurm) -> None:
        slurm.before["job_nodes"] = slurm.job_records.clear
        gathered = look_and_gather(slurm, Config(node_epilog_wait=0), ENVIRON)
        assert gathered is not None
        assert gathered.job.comment == "team=vision [slurm_ft]"

    def test_a_foreign_reason_is_no_verdict(self, slurm: FakeSlurm, fault: NodeVerdict) -> None:
        slurm.set_node("n1", state="idle+drain", reason=f"NHC: {node_record.add('', fault)}")
        gathered = look_and_gather(slurm, Config(), ENVIRON)
        assert gathered is not None
        assert gathered.verdicts == ()

    def test_the_requeue_by_slurm_hides_no_start_time_of_another_attempt(self, slurm: FakeSlurm) -> None:
        slurm.set_job("12", restarts=1, started=3000.0, ended=None)
        slurm.set_node("n2", state="down")
        gathered = look_and_gather(slurm, Config(), ENVIRON)
        assert gathered is not None
        end = gathered.end
        assert (end.key.attempt, end.started, end.restarts_now, end.down_nodes) == (0, None, 1, ("n2",))

    @pytest.mark.parametrize("nodes", [{}, {"SLURM_JOB_NODELIST": ""}])
    def test_a_job_without_nodes_is_not_blamed_on_all_dead_nodes_of_the_cluster(
        self, slurm: FakeSlurm, nodes: dict[str, str]
    ) -> None:
        slurm.set_node("n2", state="down")
        environ = {name: value for name, value in ENVIRON.items() if name != "SLURM_JOB_NODELIST"} | nodes
        gathered = look_and_gather(slurm, Config(), environ)
        assert gathered is not None
        assert (gathered.end.down_nodes, gathered.nodes) == ((), ())

    @pytest.mark.parametrize(("requeue", "batch"), [(False, True), (True, False)])
    def test_what_slurm_will_not_requeue_is_not_requeueable(self, slurm: FakeSlurm, requeue: bool, batch: bool) -> None:
        slurm.set_job("12", requeue=requeue, batch=batch)
        gathered = look_and_gather(slurm, Config(), ENVIRON)
        assert gathered is not None
        assert not gathered.end.requeueable

    def test_a_job_cannot_raise_its_limit_above_the_sites(self, slurm: FakeSlurm) -> None:
        slurm.set_job("12", comment="[slurm_ft limit=99]")
        gathered = look_and_gather(slurm, Config(), ENVIRON)
        assert gathered is not None
        assert gathered.end.limit == 3

    @pytest.mark.parametrize(
        ("opt_in", "comment", "requeue", "opted_in"),
        [
            (OptIn.TAG, "", True, False),
            (OptIn.TAG, "[slurm_ft]", True, True),
            (OptIn.REQUEUE, "", True, True),
            (OptIn.REQUEUE, "", False, False),
            (OptIn.ALL, "", False, True),
        ],
    )
    def test_the_site_chooses_how_a_job_opts_in(
        self, slurm: FakeSlurm, opt_in: OptIn, comment: str, requeue: bool, opted_in: bool
    ) -> None:
        slurm.set_job("12", comment=comment, requeue=requeue)
        gathered = look_and_gather(slurm, Config(opt_in=opt_in), ENVIRON)
        assert gathered is not None
        assert gathered.end.opted_in is opted_in

    def test_a_dead_batch_host_belongs_to_the_attempt_though_no_kill_took_it_out(self, slurm: FakeSlurm) -> None:
        slurm.set_job("12", batch_host="n1")
        slurm.set_node("n1", state="down")
        gathered = look_and_gather(slurm, Config(), ENVIRON | {"SLURM_JOB_NODELIST": "n2"})
        assert gathered is not None
        assert (gathered.end.node_names, gathered.end.down_nodes) == (("n1", "n2"), ("n1",))

    def test_a_het_job_has_the_nodes_and_the_ids_of_all_components(self, slurm: FakeSlurm) -> None:
        slurm.job_records["12"] = replace(slurm.job_records["12"], address="12+0")
        slurm.job_records["12+1"] = replace(slurm.job_records["12"], raw_id=13, address="12+1")
        environ = ENVIRON | {"SLURM_JOB_NODELIST": "n1", "SLURM_HET_JOB_NODELIST": "n[1-2]"}
        gathered = look_and_gather(slurm, Config(), environ)
        assert gathered is not None
        assert (gathered.end.node_names, gathered.end.component_ids) == (("n1", "n2"), (12, 13))

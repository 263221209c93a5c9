"""Nothing lost, nothing twice: one job's life in random order against a model, with kill -9 at any point.

Hypothesis makes up sequences of faults, node failures, preemptions, users' errors, edits of the comment, cancellations,
holds, requeues by an admin, restarts of slurmctld and killed hooks; whenever the dust has settled, the job must be what
the model says.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import a_job
from fake_cluster import ADDRESS, BEGIN_TIME, FakeCluster
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from killing_slurm import Killed, Killer, KillingSlurm

from slurm_ft import journal
from slurm_ft.config import Config, Mode, OptIn
from slurm_ft.controller import carry_out, epilog, prolog, reconcile
from slurm_ft.controller import site as site_module
from slurm_ft.controller.site import Site
from slurm_ft.failover import brake, progress
from slurm_ft.log import open_log
from slurm_ft.slurm import nodelist
from slurm_ft.slurm.cli import CommandLine

LIMIT = 3
NODES = 12
T0 = 1_700_000_000.0
MOST_LATE = 3  # times 121 s: within the ten minutes in which an end that no hook saw is still judged
WITHOUT_A_WORD = 3  # points before the hook's first entry in the journal

kills = st.none() | st.integers(0, 40)
comments = st.sampled_from(["", "[slurm_ft]", "[slurm_ft n=0/3]", '{"flags": ["x"]}', "é\n'\" [slurm_ft n=0/3 ex=]"])


class NothingLost(RuleBasedStateMachine):
    """`failures` is the model: what each attempt's hardware failure within the limit has to lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.directory = Path(tempfile.mkdtemp(prefix="slurm_ft-nothing_lost-"))
        self.cluster = FakeCluster.with_nodes(a_job(), NODES, T0)
        self.killer = Killer()
        self.failures: dict[int, str] = {}  # attempt -> node
        self.requeued: list[int] = []  # attempts that we requeued
        self.returned: set[str] = set()  # nodes that an admin has repaired since their last fault
        self.ended_otherwise_on: int | None = None  # the attempt that was cancelled or timed out on bad hardware
        self.late = 0  # how often in a row
        self.lost_end = False  # slurmctld has forgotten the end of the latest attempt
        self.detached: list[Callable[[], None]] = []
        self.config = Config(
            mode=Mode.ACT,
            opt_in=OptIn.ALL,
            state_dir=self.directory,
            log_file=self.directory / "log",
            node_epilog_wait=0,
            breaker_percent=0,  # a dozen nodes that drain one after the other are the point here
        )

    @initialize()
    def connect(self) -> None:
        clock = SimpleNamespace(time=lambda: self.cluster.now, monotonic=lambda: self.cluster.now, sleep=self._sleep)
        self.patch.setattr(site_module, "time", clock)
        self.patch.setattr(carry_out, "time", clock)
        self.patch.setattr(epilog, "settle", lambda *_: None)  # it waits, and changes no more than redundant exclusions
        self.patch.setattr(epilog, "detach", self.detached.append)
        self.patch.setattr(journal, "append", self.killer.around(journal.append))
        self.patch.setattr(journal.os, "fsync", lambda _: None)
        slurm = KillingSlurm(self.cluster, self.killer, self.check_change)
        self.patch.setattr(CommandLine, "of", lambda _: slurm)

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            self.patch.undo()
            shutil.rmtree(self.directory)

    # What must never happen, at any moment.

    def check_change(self, name: str, *arguments: Any) -> None:
        job = self.cluster.record
        if name == "requeue":
            assert job.state in ("COMPLETING", "FAILED") or self.lost_end, f"requeued a job that is {job.state}"
            self.lost_end = False
            assert job.restarts not in self.requeued, "requeued one attempt twice"
            self.requeued.append(job.restarts)
            assert len(self.requeued) <= LIMIT, "a fourth requeue"
        if name == "cancel":
            assert job.state != "RUNNING", "cancelled a healthy attempt"

    # The cluster's life.

    @precondition(lambda self: self.cluster.may_start_on())
    @rule(data=st.data(), kill=kills)
    def starts(self, data: st.DataObject, kill: int | None) -> None:
        self._tick()
        self.cluster.start(data.draw(st.sampled_from(self.cluster.may_start_on())))
        self._run(prolog, self._environ(self.cluster.record.restarts, "0:0"), kill)

    @precondition(lambda self: self._runs)
    @rule(kill=kills)
    def dies_of_a_fault(self, kill: int | None) -> None:
        self._tick()
        self._fails_by_hardware()
        self.cluster.end(1)
        self.cluster.blame()
        self._epilog(kill, "1:0")

    @precondition(lambda self: self._runs)
    @rule(kill=kills)
    def is_requeued_by_an_admin_on_bad_hardware(self, kill: int | None) -> None:
        self._tick()
        self._fails_by_hardware()
        self.cluster.preempt()
        self.cluster.blame()
        self._epilog(kill, "0:15")

    @precondition(lambda self: self._runs)
    @rule(kill=kills)
    def loses_its_node(self, kill: int | None) -> None:
        """Slurm tells the hook the ended attempt's restart count. One that is killed before it has written a word
        leaves nothing that names the node: Slurm has forgotten it, too."""
        self._tick()
        self._fails_by_hardware()
        attempt = self.cluster.record.restarts
        self.cluster.lose_node()
        self._run(epilog, self._environ(attempt, "0:0"), _after_a_word(kill))

    @precondition(lambda self: self._runs)
    @rule(kill=kills)
    def is_preempted(self, kill: int | None) -> None:
        self._tick()
        self.cluster.preempt()
        self._epilog(kill, "0:15")

    @precondition(lambda self: self._runs)
    @rule(kill=kills, code=st.integers(1, 255))
    def dies_of_its_own_error(self, kill: int | None, code: int) -> None:
        self._tick()
        self.cluster.end(code)
        self._epilog(kill, f"{code}:0")

    @precondition(lambda self: self._runs)
    @rule(kill=kills)
    def comes_to_its_time_limit_on_bad_hardware(self, kill: int | None) -> None:
        self._tick()
        self.ended_otherwise_on = self.cluster.record.restarts
        self.cluster.end(0, 15, reason="TimeLimit", ends_as="TIMEOUT")
        self.cluster.blame()
        self._epilog(kill, "0:15")

    @precondition(lambda self: self._runs)
    @rule()
    def completes(self) -> None:
        self._tick()
        self.cluster.end(0, reason="", ends_as="COMPLETED")

    @precondition(lambda self: self.cluster.record.state == "COMPLETING")
    @rule(kill=kills)
    def slurmctld_restarts(self, kill: int | None) -> None:
        """It starts EpilogSlurmctld of a COMPLETING job again."""
        self._tick()
        job = self.cluster.record
        self._epilog(kill, "0:0" if job.ended is None else f"{job.exit_code}:{job.exit_signal}")

    @precondition(lambda self: self._runs)
    @rule(kill=st.integers(WITHOUT_A_WORD + 1, 15))
    def dies_of_a_fault_and_slurmctld_forgets_the_end(self, kill: int) -> None:
        """It is killed with its hook, comes back with a saved state in which the attempt runs, and starts no hook."""
        self.dies_of_a_fault(kill)
        if self._waits_for_its_requeue:
            self.lost_end = True
            self.cluster.set_job(ADDRESS, state="RUNNING", ended=None, reason="", exit_code=0, nodes=self.cluster.taken)

    @precondition(lambda self: self.cluster.record.state == "COMPLETING")
    @rule(kill=kills)
    def completing_ends(self, kill: int | None) -> None:
        self._tick()
        self.cluster.leave_completing()
        self._run_detached(kill)

    # People.

    @precondition(lambda self: self._runs)
    @rule()
    def the_user_cancels_on_bad_hardware(self) -> None:
        """EpilogSlurmctld is told 0:0 and ends in the shell; one that slurmctld starts again is told more."""
        self._tick()
        self.ended_otherwise_on = self.cluster.record.restarts
        self.cluster.cancel(ADDRESS)
        self.cluster.set_job(ADDRESS, exit_code=3)
        self.cluster.blame()

    @rule(text=comments)
    def the_user_edits_the_comment(self, text: str) -> None:
        if not self.cluster.finished:
            self.cluster.set_job(ADDRESS, comment=text)

    @rule()
    def the_user_cancels(self) -> None:
        """A restart that no hook wrote a word of is lost with a job that ends before it was reconciled."""
        if not set(self.failures) <= {entry.key.attempt for entry in journal.entries(self.directory)}:
            self.settle()
        if self.lost_end:  # then nothing is owed to the job any more
            self.lost_end = False
            del self.failures[self.cluster.record.restarts]
            self.ended_otherwise_on = self.cluster.record.restarts
        self.cluster.cancel(ADDRESS)

    @rule()
    def another_tool_erases_the_ledger(self) -> None:
        """The journal knows it still. What is not in the journal yet would be lost, as with any log."""
        self.settle()
        if not self.cluster.finished:
            self.cluster.set_job(ADDRESS, admin_comment="")

    @precondition(lambda self: self._runs)
    @rule(kill=kills, kind=st.sampled_from([brake.Kind.PAUSED, brake.Kind.BREAKER]))
    def dies_of_a_fault_while_the_brake_is_on(self, kill: int | None, kind: brake.Kind) -> None:
        """Nothing is requeued, and nothing is made up for once the brake is off."""
        self.settle()
        before = self.cluster.record.restarts
        self._brake(kind)
        self.cluster.end(1)
        self.cluster.blame()
        self._epilog(kill, "1:0")
        self.settle()
        self._brake(brake.Kind.OFF)
        self.settle()
        assert (self.cluster.record.state, self.cluster.record.restarts) == ("FAILED", before)

    @rule(held=st.booleans())
    def an_admin_holds_or_releases(self, held: bool) -> None:
        self.cluster.held = held

    @precondition(lambda self: self.cluster.finished)
    @rule()
    def an_admin_requeues_what_has_ended(self) -> None:
        self.settle()
        if not self.cluster.finished:  # reconcile has requeued it just now
            return
        if self.ended_otherwise_on == self.cluster.record.restarts and not self._written_down():
            self._fails_by_hardware()  # as if it had been requeued while it ran: the node's verdict is all there is
        self.cluster.requeue(ADDRESS)

    @rule()
    def an_admin_repairs_all_nodes(self) -> None:
        self.settle()
        for name in self.cluster.node_records:
            self.returned.add(name)
            self.cluster.set_node(name, state="idle", reason="")

    # Time.

    @rule(kill=kills)
    def reconciled(self, kill: int | None) -> None:
        self._tick()
        self._reconcile(kill)

    @precondition(lambda self: self.late < MOST_LATE)
    @rule()
    def the_timer_is_late(self) -> None:
        self.late += 1
        self.cluster.pass_time(BEGIN_TIME)

    @rule(minutes=st.integers(1, 3))
    def the_timer_runs(self, minutes: int) -> None:
        for _ in range(minutes):
            self.cluster.pass_time(60)
            self._reconcile(None)

    @rule()
    def settle(self) -> None:
        """COMPLETING ends, and reconcile runs undisturbed; then the job is what the model says."""
        self._tick()
        self.cluster.leave_completing()
        self._run_detached(None)
        self._reconcile(None)
        if self.lost_end:
            self.cluster.pass_time(progress.LOST_END)
            self._reconcile(None)
            self.cluster.leave_completing()
        self._reconcile(None)
        self._check()

    def _check(self) -> None:
        job = self.cluster.record
        for attempt in self.failures:
            assert job.restarts > attempt, f"attempt {attempt} failed by hardware and was never requeued"
        if self.cluster.finished:
            return
        entries = journal.entries(self.directory)
        known = progress.history(job, entries, progress.run_id(job, entries))
        bad, excluded = (
            set(self.failures.values()) - self.returned,
            set(nodelist.expand(self.cluster.excluded.get(ADDRESS, ""))),
        )
        if job.state == "RUNNING":  # then Slurm takes none
            excluded |= set(known.excluded)
        assert bad <= excluded, f"an exclusion is lost: {bad} are not all in {excluded}"
        assert progress.spent(job, known) == len(self.failures)

    # How it is done.

    @property
    def _runs(self) -> bool:
        return self.cluster.record.state == "RUNNING" and not self.lost_end

    @property
    def _waits_for_its_requeue(self) -> bool:
        job = self.cluster.record
        return job.state == "COMPLETING" and job.ended is not None and job.restarts in self.failures and self._noted()

    def _noted(self) -> bool:
        return any(entry.key.attempt == self.cluster.record.restarts for entry in journal.entries(self.directory))

    def _brake(self, kind: brake.Kind) -> None:
        for name in list(self.cluster.node_records)[: brake.CARRIERS]:
            comment = brake.write(self.cluster.node_records[name].comment, brake.Brake(kind, self.cluster.now, "test"))
            self.cluster.set_node(name, comment=comment)

    def _fails_by_hardware(self) -> None:
        self.returned.discard(self.cluster.taken)
        if len(self.failures) < LIMIT:
            self.failures[self.cluster.record.restarts] = self.cluster.taken

    def _written_down(self) -> bool:
        """Whether a hook has put the end of the latest attempt into the journal, or the node was repaired since."""
        return self._noted() or not self.cluster.node_records[self.cluster.taken].draining

    def _tick(self) -> None:
        self.cluster.pass_time(1)

    def _sleep(self, seconds: float) -> None:
        self.cluster.pass_time(seconds)

    def _environ(self, restart_count: int, exit_code: str) -> dict[str, str]:
        return {
            "SLURM_JOB_ID": ADDRESS,
            "SLURM_JOB_NODELIST": self.cluster.taken,
            "SLURM_JOB_EXIT_CODE2": exit_code,
            "SLURM_JOB_RESTART_COUNT": str(restart_count),
        }

    def _epilog(self, kill: int | None, exit_code: str) -> None:
        self._run(epilog, self._environ(self.cluster.record.restarts, exit_code), kill)

    def _run(self, hook: Any, environ: Mapping[str, str], kill: int | None) -> None:
        self._die(lambda: hook.run(environ, self.config), kill)

    def _run_detached(self, kill: int | None) -> None:
        works, self.detached[:] = list(self.detached), []
        for work in works:
            self._die(work, kill)

    def _reconcile(self, kill: int | None) -> None:
        site = Site(self.config, CommandLine.of(self.config), open_log(self.config, "reconcile"), "")
        self._die(lambda: reconcile.reconcile_all(site), kill)
        self.late = 0 if kill is None else self.late

    def _die(self, work: Callable[[], Any], kill: int | None) -> None:
        self.killer.points_left = kill
        try:
            work()
        except Killed:
            pass
        finally:
            self.killer.points_left = None


def _after_a_word(kill: int | None) -> int | None:
    return None if kill is None else max(kill, WITHOUT_A_WORD + 1)


TestNothingLost = NothingLost.TestCase
# The same sequences each time, for a few seconds. Without `derandomize` and with more of them it goes on looking.
TestNothingLost.settings = settings(max_examples=80, stateful_step_count=25, deadline=None, derandomize=True)

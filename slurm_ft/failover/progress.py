"""How far decisions have got, and the next step of each. Pure: no clock, no I/O.

The hook that decided, the hooks that come after it and `slurm-ft reconcile` all ask `next_step()`, so whoever finds a
decision unfinished goes on where the one before was killed. It looks at the job as it stands: a step whose entry was
not written any more is seen to be done, or does no harm when it is done again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from slurm_ft.config import Mode
from slurm_ft.failover import comment_tag, ledger
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.model import Action, JobKey, Ledger
from slurm_ft.slurm.protocol import JobRecord

COUNTED_ACTIONS = (Action.REQUEUE, Action.RECORD)
DONE = frozenset({Stage.REQUEUED, Stage.COUNTED, Stage.RECORDED})  # any of them: the failover has happened
LATE_REQUEUE = 3600.0  # seconds after the decision in which a job that showed FAILED meanwhile is still requeued
LIFETIME = 7 * 86400.0  # seconds after which nobody waits for a running job to take its exclusions
BEGIN_TIME = 125.0  # seconds; Slurm's own wait of 121 s is over then
FINDS_ITS_WAY = 3600.0  # seconds in which a job that was requeued by a killed hook has left COMPLETING
CLOCK_STEP = 2.0  # seconds; Slurm's times are whole ones
# Seconds after which a slurmctld that was killed, and came back with a saved state older than the attempt's end, is not
# expected to notice by itself. One whose backup takes over does within a minute; 22.05 had not after eight (measured).
LOST_END = 120.0
# Reason of a COMPLETING job that was cancelled: none, or one of its start (measured on 22.05). Its hook is told 0:0,
# but the one that slurmctld starts again after a restart is told the exit code. Should the job show FAILED in the end,
# it is requeued then.
NO_FAILURE = frozenset({"", "Prolog"})
FINAL = frozenset(
    {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}
)
PENDING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
FAILED = frozenset({"FAILED", "NODE_FAIL"})  # what an attempt that lost its hardware may show when its hook was killed


class Step(Enum):
    """What is to be done next about a decision."""

    REQUEUE = "requeue"
    REQUEUE_HELD = "requeue held"
    NOTE = "note that it was requeued"
    RECORD = "exclude and record"
    COUNT = "count"  # the job runs again: Slurm takes no exclusion now
    CANCEL = "cancel"
    RELEASE = "release"
    WAIT = "wait"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Next:
    """The next step, and why."""

    step: Step
    why: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """A decision and the entries behind it, oldest first."""

    decided: Entry
    later: tuple[Entry, ...] = ()

    @property
    def key(self) -> JobKey:
        """Job and attempt that it is about."""
        return self.decided.key

    @property
    def action(self) -> Action:
        """What was decided."""
        return self.decided.decision.action if self.decided.decision else Action.NONE

    @property
    def open(self) -> bool:
        """Whether anything is left to be done."""
        acting = self.decided.mode == Mode.ACT.value and self.action is not Action.NONE
        return acting and not self.has(Stage.RELEASED, Stage.CLOSED)

    @property
    def last(self) -> Entry:
        """The newest entry."""
        return self.later[-1] if self.later else self.decided

    def has(self, *stages: Stage) -> bool:
        """Whether one of the stages was reached."""
        return any(entry.stage in stages for entry in self.later)

    def since(self, stage: Stage) -> float:
        """When the stage was reached; when it was decided, if that was not written down any more."""
        return next((entry.at for entry in self.later if entry.stage is stage), self.decided.at)

    def happened(self, restarts: int) -> bool:
        """Whether the failover took place, with the job at this restart count."""
        if self.decided.mode != Mode.ACT.value or self.action not in COUNTED_ACTIONS:
            return False
        return (
            self.action is Action.RECORD
            or self.has(*DONE)
            or (not self.has(Stage.CLOSED) and restarts > self.key.attempt)
        )


def decisions(entries: Iterable[Entry]) -> list[Progress]:
    """All decisions of the controller in the journal, oldest first; one that stands there twice is the first one."""
    matters: dict[tuple[str, int, int, str], list[Entry]] = {}
    for entry in entries:
        if entry.stage not in (Stage.SEEN, Stage.WATCH):
            matters.setdefault(entry.matter, []).append(entry)
    return [Progress(first, tuple(later)) for first, *later in matters.values() if first.stage is Stage.DECIDED]


def unjudged(entries: Sequence[Entry]) -> list[Entry]:
    """Ends of attempts whose hook did not live to decide."""
    judged = {entry.matter for entry in entries if entry.stage in (Stage.DECIDED, Stage.CLOSED)}
    seen = {entry.matter: entry for entry in entries if entry.stage is Stage.SEEN}
    return [entry for matter, entry in seen.items() if matter not in judged]


def run_id(job: JobRecord, entries: Sequence[Entry]) -> str:
    """The run id that ledger or journal know this very job by, or "". `entries` are those on its id.

    Job ids are reused and Slurm renews the submit time at each requeue, so without a ledger the journal must show how
    it came to this submit time.
    """
    history = ledger.read(job.admin_comment)
    if history:
        return history.run_id
    return next((entry.run for entry in reversed(entries) if entry.run and _leads_to(entry, job)), "")


def _leads_to(entry: Entry, job: JobRecord) -> bool:
    if job.submitted is None or entry.key.raw_id != job.raw_id or entry.key.attempt > job.restarts:
        return False
    if entry.submitted == job.submitted:
        return True
    # Killed before it saw the new submit time, which is that of the end of COMPLETING.
    unaware = entry.key.attempt < job.restarts and entry.stage is not Stage.RELEASED
    return unaware and -CLOCK_STEP <= job.submitted - entry.at <= FINDS_ITS_WAY


def history(job: JobRecord, entries: Sequence[Entry], run: str) -> Ledger:
    """The job's ledger, with what the journal alone knows of run `run`: a hook was killed, or the ledger erased."""
    known = ledger.read(job.admin_comment) or Ledger(run)
    for progress in decisions(entry for entry in entries if entry.run == run):
        if progress.happened(job.restarts):
            known = ledger.add(known, progress.decided.attempt())
    return known


def next_step(progress: Progress, job: JobRecord | None, now: float, reuse_delay: float = 0.0) -> Next:
    """What is to be done next about an open decision, with the job as it stands now.

    `now` is unix seconds; `reuse_delay` seconds must pass between the requeue and the release.
    """
    if job is None:
        return Next(Step.CLOSE, "Slurm has forgotten the job")
    if not same_job(progress, job):
        return Next(Step.CLOSE, "another job has this id by now")
    if job.restarts == progress.key.attempt:
        return _not_requeued(progress, job, now)
    return _requeued(progress, job, now, reuse_delay)


def same_job(progress: Progress, job: JobRecord) -> bool:
    """Whether it is the job that was decided on: job ids are reused."""
    known = ledger.read(job.admin_comment)
    if known and known.run_id == progress.decided.run:
        return True
    entries = (progress.decided, *progress.later)
    return job.restarts >= progress.key.attempt and any(_leads_to(entry, job) for entry in entries)


def _not_requeued(progress: Progress, job: JobRecord, now: float) -> Next:
    """A requeue would revive a job that was cancelled or came to its time limit, and kill a running attempt."""
    if progress.action is Action.CANCEL and job.state == "COMPLETING":
        return Next(Step.REQUEUE_HELD, "Slurm would start an expedited job again before it can be cancelled")
    if progress.action is not Action.REQUEUE:
        return Next(Step.CLOSE, f"its restart count is {job.restarts} again")
    if job.state == "COMPLETING":
        # A script that ended well, with a failed step, has no reason either; a cancelled one has a signal or a code.
        cancelled = job.reason in NO_FAILURE and (job.exit_code, job.exit_signal) != (0, 0)
        return Next(Step.WAIT, "cancelled, as it seems: no reason") if cancelled else Next(Step.REQUEUE)
    if job.state == "RUNNING":
        return _lost_end(progress, job, now)
    return _late_requeue(progress, job, now)


def _lost_end(progress: Progress, job: JobRecord, now: float) -> Next:
    """slurmctld came back with a saved state that is older than the end of the attempt: nothing runs any more.

    Only the start tells it from an attempt that was started once more under the same restart count.
    """
    why = "its controller has lost the end of the attempt"
    if job.started is None or progress.decided.started is None:
        return Next(Step.WAIT, why)
    if abs(job.started - progress.decided.started) > CLOCK_STEP:
        return Next(Step.CLOSE, "not requeued: the attempt was started once more")
    return Next(Step.WAIT if now - progress.decided.at < LOST_END else Step.REQUEUE, why)


def _late_requeue(progress: Progress, job: JobRecord, now: float) -> Next:
    if job.state not in FAILED:
        return Next(Step.CLOSE, f"not requeued: the job is {job.state} by now")
    if now - progress.decided.at > LATE_REQUEUE:
        return Next(Step.CLOSE, f"not requeued: decided more than {LATE_REQUEUE:g} s ago")
    return Next(Step.REQUEUE, "it showed FAILED for a while: jobs that depend on it (afterok) may never run")


def _requeued(progress: Progress, job: JobRecord, now: float, reuse_delay: float) -> Next:
    if progress.action is Action.REQUEUE and not progress.has(Stage.REQUEUED):
        return Next(Step.NOTE, "found requeued: by a hook that was killed, or by somebody else")
    if job.state in FINAL:
        return Next(Step.CLOSE, f"the job is {job.state} by now")
    if job.state == "COMPLETING" and job.ended is not None:  # Slurm takes no update, and may yet take none any more
        return Next(Step.WAIT, "the next attempt has ended, or the job was cancelled")
    if progress.has(Stage.RECORDED):
        return _recorded(progress, job, now, reuse_delay)
    if _takes_exclusions(job):
        return Next(Step.RECORD)
    return _running(progress, job, now)


def _takes_exclusions(job: JobRecord) -> bool:
    return job.state in PENDING or job.state == "COMPLETING"


def _recorded(progress: Progress, job: JobRecord, now: float, reuse_delay: float) -> Next:
    if progress.action is Action.CANCEL:
        if _takes_exclusions(job):
            return Next(Step.CANCEL)
        return Next(Step.CLOSE, "the job runs again already, and is left running")
    waited = now - progress.since(Stage.REQUEUED)
    if job.restarts > progress.key.attempt + 1 or not _takes_exclusions(job) or waited > BEGIN_TIME:
        return Next(Step.CLOSE, "the job needs no release")
    if job.state == "COMPLETING" or waited < reuse_delay:
        return Next(Step.WAIT, "not before the end of COMPLETING")
    return Next(Step.RELEASE)


def _running(progress: Progress, job: JobRecord, now: float) -> Next:
    if progress.action is Action.CANCEL:
        return Next(Step.CLOSE, "the job runs again already, and is left running")
    if not progress.has(Stage.COUNTED):
        return Next(Step.COUNT)
    if now - progress.decided.at > LIFETIME:
        return Next(Step.CLOSE, "the exclusion is in the ledger alone: the job has run for too long to wait for it")
    return Next(Step.WAIT, f"excluded when the job is next pending; it is {job.state}")


def spent(job: JobRecord, known: Ledger) -> int:
    """Failovers spent: the greater of the tag and `history()`, so that erasing one wins nothing."""
    tag = comment_tag.read(job.comment)
    return max(tag.count if tag else 0, known.count)

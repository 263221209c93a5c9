"""The canary: a small job of our own loses its GPU on one named node, by a line in that node's kernel log alone.

Everything behind the line is real: the Epilog drains the node, the controller requeues the job without it, the job
starts elsewhere and ends. Then the node is returned. The line names the canary, so that whoever reads the log knows.

    submit on NODE -> runs -> line in the kernel log, script killed -> NODE drained -> requeued, counted, NODE excluded
    -> starts elsewhere -> NODE returned
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from slurm_ft.config import Config, Mode
from slurm_ft.doctor.finding import Finding, Stage, fail, ok, warning
from slurm_ft.doctor.rehearsal import LOST_GPU
from slurm_ft.errors import SlurmCommandError, SlurmFtError
from slurm_ft.failover import actions, brake, claim, comment_tag, node_record
from slurm_ft.node import attempt_file
from slurm_ft.node.observe import KMSG
from slurm_ft.sensors.gpu_inventory import gpus_of_job
from slurm_ft.slurm import nodelist
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.environment import NODE_NAME
from slurm_ft.slurm.protocol import JobRecord, JobUpdate, NodeRecord

STAGE = Stage.CANARY
LINE = LOST_GPU + " ({name}: nothing is broken)"  # node_record.CANARY knows it again
SCRIPT = '[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && exit 0; sleep 300; exit 1'
START_S = 60.0  # seconds for the job to start, here and elsewhere
STEP_S = 90.0  # seconds for each step of the failover; the hooks' own bounds are shorter
POLL_S = 0.1
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "DEADLINE")
ENDING = (
    signal.SIGTERM,
    signal.SIGHUP,
)  # what ends a process without an exception: a closed terminal, a systemctl stop


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the admin asked for. No `user`: root submits; no `partition`: Slurm's default."""

    node: str
    user: str | None = None
    partition: str | None = None
    here: bool = False  # this machine is the node, though it has another name


@dataclass(frozen=True, slots=True)
class Canary:
    """One canary: the job and the node that it is about."""

    slurm: CommandLine
    config: Config
    node: str
    name: str
    job: str
    run_dir: Path
    began: float  # monotonic seconds

    @property
    def age(self) -> str:
        """For people: how long after the submission."""
        return f"{time.monotonic() - self.began:.1f} s"


class _StopError(Exception):
    """A step did not come true; carries what to say."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.what)
        self.finding = finding


class _EndedError(SystemExit):
    """A signal that would end the process; whoever does not catch it ends it quietly, after the tidying."""

    def __init__(self, name: str) -> None:
        super().__init__(128 + signal.Signals[name])
        self.name = name

    def __str__(self) -> str:
        return self.name


def run(config: Config, wishes: Wishes) -> Iterator[Finding]:
    """One finding for each step. Whatever happens, the job is gone and the node is back in the end.

    Raises SlurmFtError when it cannot begin.
    """
    slurm = CommandLine.of(config)
    refuse(slurm.nodes(), config, wishes)
    canary = None
    with _on_signals(_end):
        try:
            with _held_back():  # a signal in here would leave a job whose number nobody knows
                canary = _submit(slurm, config, wishes)
            yield ok(STAGE, f"job {canary.job} ({canary.name}) is submitted, for {canary.node} first")
            yield from _steps(canary)
        except _StopError as stop:
            yield stop.finding
        except _EndedError as ended:
            yield fail(STAGE, f"{ended} ended the canary", "Run it again")
        finally:
            with _on_signals(signal.SIG_IGN):
                left = _tidy(canary) if canary else None
        if left is not None:
            yield left


def _end(number: int, _frame: FrameType | None) -> None:
    raise _EndedError(signal.Signals(number).name)


@contextmanager
def _on_signals(what: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    """Their handlers until the block is over. Main thread only."""
    before = {number: signal.signal(number, what) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _held_back() -> Iterator[None]:
    """A signal that comes meanwhile arrives at the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def refuse(nodes: list[NodeRecord], config: Config, wishes: Wishes) -> None:
    """Raises SlurmFtError for what cannot end well."""
    node = next((one for one in nodes if one.name == wishes.node), None)
    if node is None:
        raise SlurmFtError(f"Slurm knows no node {wishes.node}", "sinfo lists them")
    if node.draining:
        raise SlurmFtError(f"node {wishes.node} is out of service: {node.reason}", "Choose another, or return it first")
    if config.mode is not Mode.ACT:
        raise SlurmFtError("mode is observe: no node would be drained", "Set mode: act, or read the journal instead")
    if held := brake.in_force(nodes):
        raise SlurmFtError(f"{held}: no node would be drained", "slurm-ft unpause, if that may be")
    if not any(one.name != wishes.node and not one.draining for one in nodes):
        raise SlurmFtError(f"no node but {wishes.node} is in service", "The job has nowhere to go: return one first")
    own = os.environ.get(NODE_NAME) or socket.gethostname().partition(".")[0]
    if not wishes.here and own != wishes.node:
        what = f"the kernel log of {wishes.node} cannot be written from {own}"
        raise SlurmFtError(what, "Run it there, or say --here if this machine is that node")
    if os.geteuid() != 0:
        raise SlurmFtError("only root may write to the kernel log", "Run it as root")


def _submit(slurm: CommandLine, config: Config, wishes: Wishes) -> Canary:
    """Every other node is excluded at first: with --nodelist the job would be bound to its node for ever."""
    others = nodelist.fold(node.name for node in slurm.nodes() if node.name != wishes.node)
    name = f"slurm_ft canary {secrets.token_hex(4)}"
    partition = wishes.partition or next(iter(config.partitions), None)
    options = (
        "--nodes=1", "--ntasks=1", "--gres=gpu:1", "--time=10", "--requeue", "--open-mode=append",
        "--chdir=/", "--output=/dev/null", "--comment=[slurm_ft]", "--job-name=slurm_ft-canary", f"--exclude={others}",
        *((f"--partition={partition}",) if partition else ()),
    )  # fmt: skip
    began = time.monotonic()
    try:
        job = slurm.submit(SCRIPT, options, wishes.user)
    except SlurmCommandError as error:
        raise SlurmFtError(error.what, "Name somebody who may submit (--user), and where (--partition)") from error
    return Canary(slurm, config, wishes.node, name, job, attempt_file.run_dir(), began)


def _steps(canary: Canary) -> Iterator[Finding]:
    """Raises _StopError at the first that does not come true."""
    _await(canary, _runs(canary), START_S, f"job {canary.job} does not start on {canary.node}", "Is a GPU free there?")
    yield ok(STAGE, f"it runs on {canary.node} after {canary.age}")
    _await(canary, _noted(canary), START_S, *_no_note(canary))
    line = LINE.format(pci=_gpu(canary), name=canary.name)
    with KMSG.open("wb", buffering=0) as log:
        log.write(f"<3>{line}\n".encode())
    canary.slurm.kill_batch_script(canary.job)
    yield ok(STAGE, f"its GPU is lost, says the kernel log: {line}")
    fix = "See the hooks' log; slurm-ft doctor checks the hooks"
    _await(canary, lambda: _is_drained(canary), STEP_S, f"{canary.node} is not drained", fix)
    yield ok(STAGE, f"{canary.node} is drained after {canary.age}: {_node(canary).reason}")
    _await(canary, lambda: _counted(canary) == 1, STEP_S, "the job is not requeued and counted", fix)
    yield ok(STAGE, f"the job is requeued and counted after {canary.age}: {_job(canary).comment}")
    yield _exclusion(canary)
    yield _elsewhere(canary)


def _runs(canary: Canary) -> Callable[[], bool]:
    def runs() -> bool:
        job = _job(canary)
        return job.state == "RUNNING" and job.nodes == canary.node

    return runs


def _noted(canary: Canary) -> Callable[[], bool]:
    """Without the Prolog's note the Epilog would not know which kernel lines are the job's."""
    return lambda: attempt_file.exists(canary.run_dir, canary.node, _job(canary).raw_id)


def _no_note(canary: Canary) -> tuple[str, str]:
    """What is missing, and what to look at."""
    what = f"the Prolog on {canary.node} leaves no note of job {canary.job} in {canary.run_dir}/attempts"
    where = f"{attempt_file.RUN_DIR_VARIABLE} has to be here what it is for slurmd"
    return what, f"Is slurm_ft's Prolog in slurm.conf? {where}; see the hooks' log"


def _gpu(canary: Canary) -> str:
    """The PCI address of the job's GPU, as the Epilog will find it."""
    job = _job(canary)
    attempts = attempt_file.running(canary.run_dir, canary.node)
    indices = next((attempt.gpus for attempt in attempts if attempt.raw_id == job.raw_id), "")
    configured = canary.config.gpu_inventory.get(canary.node, ())
    found = gpus_of_job(indices, configured=configured, cache=canary.run_dir / "gpus")
    if not found:
        what = f"the PCI address of the job's GPU is not known (GRES index {indices or 'none'})"
        raise _StopError(fail(STAGE, what, "slurm-ft doctor, on the node; gpu_inventory in slurm_ft.yaml"))
    return min(found)


def _is_drained(canary: Canary) -> bool:
    node = _node(canary)
    faults = node_record.in_reason(node.reason, node.name)
    return node.draining and any(fault.raw_id == int(canary.job) for fault in faults)


def _counted(canary: Canary) -> int:
    job = _job(canary)
    return claim.spent(job.comment, job.admin_comment) if job.restarts == 1 and comment_tag.read(job.comment) else 0


def _exclusion(canary: Canary) -> Finding:
    """From now on the job may go anywhere else."""
    excluded = nodelist.expand(canary.slurm.excluded_nodes(canary.job))
    canary.slurm.update_job(canary.job, JobUpdate(excluded_nodes=canary.node))
    if canary.node not in excluded:
        return fail(STAGE, f"{canary.node} is not excluded: {','.join(excluded)}", "Report it with the hooks' log")
    return ok(STAGE, f"{canary.node} is excluded for it")


def _elsewhere(canary: Canary) -> Finding:
    """A full cluster is no fault of ours: the job waits like any other."""
    try:
        _await(canary, lambda: _job(canary).state in ENDED, START_S, "the job does not start again", "")
    except _StopError:
        job = _job(canary)
        what = f"the job is {job.state} ({job.reason}) after {canary.age}: no other node took it"
        return warning(STAGE, what, "Try again while a node with a free GPU is idle")
    job = _job(canary)
    if job.state != "COMPLETED" or canary.node in nodelist.expand(job.nodes):
        return fail(STAGE, f"the job ended {job.state} on {job.nodes}", "slurm-ft explain " + canary.job)
    return ok(STAGE, f"it went on on {job.nodes} and completed after {canary.age}")


def _tidy(canary: Canary) -> Finding:
    """Nothing of the canary stays but its lines in the logs and the journal."""
    slurm, node = canary.slurm, canary.node
    try:
        job = slurm.job(canary.job)
        if job is not None and job.state not in ENDED:
            _await(canary, lambda: _cancelled(canary), STEP_S, "the job does not end", "")
        found = _node(canary)
        reason, faults = found.reason, node_record.in_reason(found.reason, node)
        if not faults or not found.draining:
            return ok(STAGE, f"{node} is in service, and the job is gone")
        if any(fault.raw_id != int(canary.job) for fault in faults):
            return warning(
                STAGE, f"{node} stays drained, for more than the canary: {reason}", f"slurm-ft undrain {node}"
            )
        return ok(STAGE, f"{actions.undrain(slurm, node)}; all in all {canary.age}")
    except (SlurmFtError, _StopError) as error:
        fix = f"scancel {canary.job}; scontrol update NodeName={node} State=RESUME"
        return fail(STAGE, f"the canary could not be cleared away: {error}", fix)


def _cancelled(canary: Canary) -> bool:
    """A job that is completing cannot be cancelled, and is requeued right after: then it is cancelled again."""
    state = _job(canary).state
    if state not in (*ENDED, "COMPLETING"):
        canary.slurm.cancel(canary.job)
    return state in ENDED


def _job(canary: Canary) -> JobRecord:
    job = canary.slurm.job(canary.job)
    if job is None:
        raise _StopError(fail(STAGE, f"Slurm has forgotten job {canary.job}", "MinJobAge in slurm.conf is too short"))
    return job


def _node(canary: Canary) -> NodeRecord:
    return canary.slurm.nodes(canary.node)[0]


def _await(canary: Canary, condition: Callable[[], bool], limit_s: float, what: str, fix: str) -> None:
    """Raises _StopError when it does not come true within `limit_s` seconds, or while the job lasts."""
    deadline = time.monotonic() + limit_s
    while not condition():
        job = _job(canary)
        ended = job.state in ENDED and not condition()  # it may have come true just now
        if ended or time.monotonic() > deadline:
            when = "and the job is over" if ended else f"within {limit_s:g} s"
            raise _StopError(fail(STAGE, f"{what}, {when}: it is {job.state} ({job.reason})", fix))
        time.sleep(POLL_S)

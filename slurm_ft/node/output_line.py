"""The node Epilog's line at the end of the job's own log: of what the attempt ended, as the batch host sees it.

The batch host alone writes, since appending is atomic on one machine and not between several on NFS; the log is there,
and the job's processes have ended. The decision falls later, on the controller, where the user's files need not be: the
next attempt's start tells it (slurm_ft/launch/again.py).

The line goes only into a regular file that exists, is the user's own and has no other name, opened with the user's
rights: never through a link, into a FIFO or a device, or into somebody else's file that the user gave another name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from slurm_ft import log_marks
from slurm_ft.as_user import REFUSED, NotRegularError, User, ask_child, open_regular
from slurm_ft.config import Config, Mode, OptIn
from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import claim, comment_tag
from slurm_ft.model import Domain, ExitStatus, JobKey, NodeAction, Verdict
from slurm_ft.node.array_task import with_task_numbers
from slurm_ft.sensors.job_output import NODELISTS, the_one_file, user_of
from slurm_ft.sensors.output_path import may_be_of_an_array, output_path
from slurm_ft.slurm import environment, nodelist

TIMEOUT_S = 3.0
PARTITION = "SLURM_JOB_PARTITION"
WRITTEN = b"w"


def wanted(environ: Mapping[str, str], config: Config, node: str) -> bool:
    """Whether this job's log gets a line from this node: it failed, it asked for failover, and its script ran here."""
    if not config.evidence_in_log or config.mode is not Mode.ACT or environment.exit_status(environ).success:
        return False
    return _opted_in(environ, config) and _batch_host(environ) == node


def compose(environ: Mapping[str, str], config: Config, key: JobKey, verdict: Verdict, action: NodeAction) -> str:
    """The line. The count is that of the attempt's start, which is what the node knows. Pure."""
    comment = environ.get(environment.COMMENT, "")
    tag, limit = comment_tag.read(comment) or comment_tag.Tag(), claim.limit(comment, config)
    node = environment.node_name(environ)
    seen = f" {verdict.cause} {log_marks.quote(verdict.decisive.source)}" if verdict.decisive else f": {verdict.reason}"
    how = f"on {node} with {_in_words(environment.exit_status(environ))}"
    if verdict.domain is Domain.HARDWARE:
        follows = _after_a_fault(verdict, action, node, left=limit - tag.count)
    else:
        follows = _after_its_own_end(verdict, node, several=len(_nodes(environ)) > 1)
    attempt = f"{tag.count + 1}/{limit + 1}"
    what = f"{how}: {verdict.domain.value}{seen.rstrip('.')}; {follows}"
    return log_marks.ended(key.raw_id, attempt, key.attempt, what)


def append(environ: Mapping[str, str], config: Config, key: JobKey, line: str) -> str:
    """Add the line to the log, as its user. Returns why it could not be; "" when it is there. Never raises."""
    refusal = _append(environ, line)
    if refusal == os.strerror(2) and may_be_of_an_array(environ):
        task = with_task_numbers(environ, config, key)
        refusal = refusal if task is None else _append(task, line)
    return refusal


def _append(environ: Mapping[str, str], line: str) -> str:
    path, user = output_path(environ), user_of(environ)
    if path is None or user is None:
        return "Slurm did not say where the job's output is, or whose"
    answer = ask_child(user, lambda: _write(path, user, line), TIMEOUT_S)
    return "" if answer == WRITTEN else answer.removeprefix(REFUSED).decode("utf-8", "replace")


def _write(path: str, user: User, line: str) -> bytes:
    """For the child that has become the user. Raises OSError."""
    descriptor = open_regular(the_one_file(path), os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
    status = os.fstat(descriptor)
    if status.st_uid != user.uid or status.st_nlink != 1:
        raise NotRegularError(0, "not the user's own file, or one with several names")
    torn = status.st_size > 0 and os.pread(descriptor, 1, status.st_size - 1) != b"\n"
    os.write(descriptor, b"\n" * torn + log_marks.as_bytes(line))
    return WRITTEN


def _after_a_fault(verdict: Verdict, action: NodeAction, node: str, *, left: int) -> str:
    """The node knows what it did; whether the job may be requeued is for the controller to say."""
    if verdict.node_action is NodeAction.DRAIN and action is not NodeAction.DRAIN:
        return f"failover is held back and {node} not drained: see slurm-ft status"
    drained = f"{node} is drained; " if action is NodeAction.DRAIN else ""
    if left <= 0:
        return f"{drained}all failovers are spent"
    return f"{drained}the job starts again without {node}, if it may be requeued ({left} failovers left)"


def _after_its_own_end(verdict: Verdict, node: str, *, several: bool) -> str:
    if several:
        return f"no hardware fault of {node} that ends a job; the other nodes judge for themselves"
    return "the program's own end, not started again" if verdict.domain is Domain.APPLICATION else "not started again"


def _in_words(status: ExitStatus) -> str:
    return f"signal {status.signal}" if status.signal else f"exit code {status.code}"


def _opted_in(environ: Mapping[str, str], config: Config) -> bool:
    partition = environ.get(PARTITION, "")
    if config.partitions and partition not in config.partitions:
        return False
    return config.opt_in is not OptIn.TAG or comment_tag.read(environ.get(environment.COMMENT, "")) is not None


def _batch_host(environ: Mapping[str, str]) -> str:
    """Slurm starts the batch script on the first node of the job; "" where it does not say which nodes these are."""
    return next(iter(_nodes(environ)), "")


def _nodes(environ: Mapping[str, str]) -> tuple[str, ...]:
    try:
        return nodelist.expand(next((environ[name] for name in NODELISTS if environ.get(name)), ""))
    except SlurmFtError:
        return ()

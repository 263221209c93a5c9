"""The files that hold a job's output: from what Slurm says of its streams to paths. Pure.

A pattern with `%N` gives each attempt a file of its own, by the node on which its batch script ran; the ledger knows
the nodes of earlier attempts. `%t`, `%n` and `%s` of a batch script are always the same (0, 0, batch). What `srun
--output` names is the script's own affair: Slurm does not tell it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import ledger
from slurm_ft.sensors.output_path import STDOUT, UNKNOWN, WORK_DIR, output_path
from slurm_ft.slurm import environment, nodelist
from slurm_ft.slurm.protocol import JobRecord, Streams

THROWN_AWAY = "/dev/null"


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file. `restart` is that of the first attempt that writes there.

    `loose` is the same name with UNKNOWN where Slurm may put something else than it tells: for %N the host's own name
    (measured on 22.05), for %x of a script from a pipe `(null)`. Empty where there is nothing loose about it.
    """

    path: str
    restart: int
    loose: str = ""


def log_files(job: JobRecord, streams: Streams) -> tuple[LogFile, ...]:
    """The files in the order of their attempts, standard output before standard error; without what is thrown away."""
    found: dict[str, LogFile] = {}
    for restart, host in _hosts(job):
        for pattern in _patterns(job, streams):
            exact = _expanded(pattern, job, streams, host)
            loose = _expanded(pattern.replace("%N", "%x"), replace(job, name=""), streams, host) or ""
            if exact not in (None, THROWN_AWAY):
                since = restart if "%N" in pattern else 0
                found.setdefault(exact, LogFile(exact, since, loose if UNKNOWN in loose else ""))
    return tuple(found.values())


def _patterns(job: JobRecord, streams: Streams) -> tuple[str, ...]:
    """Of an array's task without an --output, 22.05 tells the name that it would have as no task (measured)."""
    told = [pattern for pattern in (streams.stdout, streams.stderr) if pattern]
    directory, slash, name = streams.stdout.rpartition("/")
    if "_" in job.address and name in (f"slurm-{job.raw_id}.out", "slurm-%j.out"):
        told.insert(0, f"{directory}{slash}slurm-%A_%a.out")
    return tuple(dict.fromkeys(told))


def _hosts(job: JobRecord) -> Iterator[tuple[int, str]]:
    """Where the batch script of each attempt ran; an empty name for one that has not started."""
    history = ledger.read(job.admin_comment)
    for attempt in history.attempts if history else ():
        if attempt.number < job.restarts:
            yield attempt.number, _first(attempt.nodes)
    yield job.restarts, job.batch_host or _first(job.nodes)


def _first(nodes: str) -> str:
    try:
        return next(iter(nodelist.expand(nodes)), "")
    except SlurmFtError:  # a ledger's text
        return ""


def _expanded(pattern: str, job: JobRecord, streams: Streams, host: str) -> str | None:
    array, _, task = job.address.partition("_")
    numbers = {environment.ARRAY_JOB_ID: array, environment.ARRAY_TASK_ID: task} if task else {}
    return output_path(
        {
            STDOUT: pattern,
            WORK_DIR: streams.work_dir,
            environment.JOB_ID: str(job.raw_id),
            environment.NODE_NAME: host,
            "SLURM_JOB_USER": job.user,
            "SLURM_JOB_NAME": job.name,
            **numbers,
        }
    )

"""Finished jobs from Slurm's accounting (sacct), for those that slurmctld has forgotten (MinJobAge after their end).

What sacct does not keep, or not on every release, is filled in with what is true of nearly all: that the job is a batch
job that may be requeued.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_ft.errors import SlurmCommandError
from slurm_ft.slurm import fields
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord

# The names that `sacct -o` knows on 22.05 to 26.05. Comment is empty unless AccountingStoreFlags holds job_comment.
FIELDS = (
    "JobIDRaw", "JobID", "JobName", "User", "Partition", "State", "ExitCode", "Submit", "Start", "End", "NodeList",
    "NNodes", "Timelimit", "Account", "QOS", "Reservation", "AdminComment", "Comment",
)  # fmt: skip
OFF = "accounting storage is disabled"  # what sacct says where AccountingStorageType is none (measured on 22.05)
NOTHING = ("", "None assigned", "Unknown", "None")


def finished(slurm: CommandLine, filters: Sequence[str]) -> list[JobRecord] | None:
    """The jobs that these options of sacct let through, in one request; None where accounting is off.

    Raises SlurmCommandError when slurmdbd does not answer.
    """

    def arguments(end: str) -> tuple[str, ...]:
        wide = ",".join(FIELDS)
        return ("--noheader", "--allocations", "--parsable", f"--delimiter={end}", f"--format={wide}", *filters)

    try:
        rows = slurm.cells("sacct", arguments, len(FIELDS))
    except SlurmCommandError as error:
        if OFF in error.output:
            return None
        raise
    try:
        return [_record(row) for row in rows]
    except ValueError as error:
        raise SlurmCommandError("sacct", "answered something unexpected", str(error)) from error


def _record(row: Sequence[str]) -> JobRecord:
    (raw_id, address, name, user, partition, state, exit_code, submitted, started, ended, nodes,
     node_count, time_limit, account, qos, reservation, admin_comment, comment) = row  # fmt: skip
    code, signal = fields.exit_status(exit_code)
    return JobRecord(
        raw_id=int(raw_id.partition("+")[0]),
        address=address,
        name=name,
        user=user,
        partition=partition,
        state=state.partition(" ")[0],  # `CANCELLED by 1000`
        reason="",
        nodes=_text(nodes),
        restarts=0,
        requeue=True,
        batch=True,
        exit_code=code,
        exit_signal=signal,
        submitted=_time(submitted),
        started=_time(started),
        ended=_time(ended),
        stdout="",
        comment=comment,
        admin_comment=admin_comment,
        reservation=_text(reservation),
        node_count=fields.count(node_count or "0"),
        time_limit=fields.seconds(time_limit),
        account=_text(account),
        qos=_text(qos),
    )


def _text(value: str) -> str:
    return "" if value in NOTHING else value


def _time(value: str) -> float | None:
    return float(value) if value.isdigit() else None

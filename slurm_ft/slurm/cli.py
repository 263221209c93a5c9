"""The Slurm backend that uses Slurm's own commands, with explicit formats.

`scontrol --json` does not exist on 22.05 and JSON shapes drift between releases, so we name each field and end it
with a random word made for that call: no field, whatever its user put into it, can hold that word, and newlines do no
harm.
A field without a width comes untruncated (measured on 22.05, 24.11 and 26.05: 9,000 characters).
"""

from __future__ import annotations

import math
import os
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path

from slurm_ft.config import Config
from slurm_ft.errors import SlurmCommandError
from slurm_ft.slurm.fields import (
    EXPEDITED_MARK,
    JOB_FIELDS,
    NODE_FIELDS,
    STREAM_FIELDS,
    count,
    end_time,
    exit_status,
    seconds,
)
from slurm_ft.slurm.protocol import JobRecord, JobUpdate, NodeRecord, Streams

NULL = "(null)"
# What Slurm's commands say when the controller does not answer (measured on 22.05, 24.11
# and 26.05, with slurmctld stopped or hung).
BUSY = (
    "Unable to contact slurm controller",
    "Socket timed out on send/recv operation",
    "Communication connection failure",
    "Zero Bytes were transmitted or received",
    "Connection refused",
    "Unexpected message received",  # scontrol requeue, with slurmctld stopped
)
PAUSES = (0.5, 2.0, 5.0, 10.0)  # seconds before a busy controller is asked again
LEAST_TIMEOUT = 1.0  # seconds that a command gets, even when the budget is spent
NOTHING = (NULL, "N/A", "none", "None", "Unknown")


@dataclass(frozen=True, slots=True)
class Host:
    """The machine of one node, by the name that slurm.conf gives it, and the number of GPUs in the node's Gres."""

    node: str
    host: str
    gpus: int


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Runs Slurm's commands from `bin_dir` against the cluster of `conf` (None: Slurm's default)."""

    bin_dir: Path = Path("/usr/bin")
    conf: Path | None = None
    timeout: float = 10.0
    tries: int = 3  # a controller that is restarting or overloaded is asked again
    until: float | None = None  # monotonic seconds: asked again until then, however often

    @classmethod
    def of(cls, config: Config) -> CommandLine:
        """The backend that the configuration describes."""
        return cls(config.slurm_bin, config.slurm_conf, config.command_timeout)

    def impatient(self) -> CommandLine:
        """The same for a person who waits: a controller that does not answer is asked once."""
        return replace(self, tries=1)

    def within(self, budget: float) -> CommandLine:
        """The same for a hook that may spend `budget` seconds on all of its commands together."""
        return replace(self, until=time.monotonic() + budget)

    def job(self, address: str) -> JobRecord | None:
        """See Slurm.job."""
        try:
            found = self.jobs(("-j", address))
        except SlurmCommandError as error:
            if "Invalid job id" in error.output:
                return None
            raise
        named = (job for job in found if address in (str(job.raw_id), job.address))  # all of a het job are listed
        return next(named, found[0] if found else None)

    def jobs(self, filters: Sequence[str] = ()) -> list[JobRecord]:
        """See Slurm.jobs."""
        rows = self._table("squeue", ("-h", "-r", "-a", "--states=all", *filters), JOB_FIELDS)
        try:
            return [_job(row) for row in rows]
        except ValueError as error:
            raise _unexpected("squeue", str(error)) from error

    def streams(self, address: str) -> list[Streams]:
        """Where the output of a job goes, or of each task of an array. Raises SlurmCommandError."""
        rows = self._table("squeue", ("-h", "-r", "-a", "--states=all", f"--jobs={address}"), STREAM_FIELDS)
        return [Streams(int(raw_id), int(uid), _text(out), _text(err), _text(at)) for raw_id, uid, out, err, at in rows]

    def job_nodes(self, address: str) -> str:
        """See Slurm.job_nodes."""
        rows = self._run("squeue", "-h", "-t", "all", "-j", address, "-o", "%T %N").splitlines()
        if len(rows) > 1:  # a het job
            rows = [row for row in rows if row.startswith("COMPLETING")]
        return ",".join(filter(None, (row.partition(" ")[2].strip() for row in rows)))

    def excluded_nodes(self, address: str) -> str:
        """See Slurm.excluded_nodes. The one job field that only `squeue -o` prints."""
        rows = self._run("squeue", "-h", "-t", "all", "-j", address, "-o", "%i %x").splitlines()
        excluded = dict(row.strip().partition(" ")[::2] for row in rows)
        return _text(excluded.get(address, next(iter(excluded.values()), "")).strip())

    def nodes(self, nodelist: str = "") -> list[NodeRecord]:
        """See Slurm.nodes."""
        chosen = ("-n", nodelist) if nodelist else ()
        rows = self._table("sinfo", ("-h", "-N", "-a", *chosen), NODE_FIELDS)
        by_name = {row[0]: _node(row) for row in rows}
        return list(by_name.values())  # sinfo names a node once for each of its partitions

    def cluster(self) -> str:
        """See Slurm.cluster."""
        return self.settings().get("ClusterName", "")

    def settings(self) -> dict[str, str]:
        """slurm.conf as slurmctld has it, in the words of `scontrol show config`. Raises SlurmCommandError."""
        rows = (row.partition("=") for row in self._run("scontrol", "show", "config").splitlines())
        return {name.strip(): "" if value.strip() == NULL else value.strip() for name, equals, value in rows if equals}

    def hosts(self) -> list[Host]:
        """Which machine each node is on, and its GPUs. Raises SlurmCommandError."""
        rows = self._table("sinfo", ("-h", "-N", "-a"), ("NodeList", "NodeHost", "Gres"))
        return list({node: Host(node, host, _gpus(gres)) for node, host, gres in rows}.values())

    def drain_node(self, name: str, reason: str) -> None:
        """See Slurm.drain_node."""
        self._run("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")

    def resume_node(self, name: str) -> None:
        """See Slurm.resume_node."""
        self._run("scontrol", "update", f"NodeName={name}", "State=RESUME")

    def set_node_comment(self, name: str, comment: str) -> None:
        """See Slurm.set_node_comment."""
        self._run("scontrol", "update", f"NodeName={name}", f"Comment={comment}")

    def expedited(self, address: str) -> bool:
        """See Slurm.expedited. Only scontrol tells, and only where the option exists (fields.EXPEDITED)."""
        return EXPEDITED_MARK in self._run("scontrol", "-o", "show", "job", address).split()

    def requeue(self, address: str) -> None:
        """See Slurm.requeue."""
        self._run("scontrol", "requeue", address)

    def requeue_held(self, address: str) -> None:
        """See Slurm.requeue_held."""
        self._run("scontrol", "requeuehold", address)

    def release_hold(self, address: str) -> None:
        """See Slurm.release_hold."""
        self._run("scontrol", "release", address)

    def cancel(self, address: str) -> None:
        """See Slurm.cancel."""
        self._run("scancel", address)

    def kill_batch_script(self, address: str) -> None:
        """See Slurm.kill_batch_script. `--full` would make it a cancelled job (measured on 22.05)."""
        self._run("scancel", "--signal=KILL", "--batch", address)

    def update_job(self, address: str, update: JobUpdate) -> None:
        """See Slurm.update_job."""
        fields = {
            "ExcNodeList": update.excluded_nodes,
            "Comment": update.comment,
            "AdminComment": update.admin_comment,
            "StartTime": f"now{f'+{update.start_in}' * bool(update.start_in)}" if update.start_now else None,
        }
        changes = [f"{name}={value}" for name, value in fields.items() if value is not None]
        self._run("scontrol", "update", f"JobId={address}", *changes)

    def submit(self, command: str, options: Sequence[str], user: str | None = None) -> str:
        """Submit a batch job that runs a shell `command`, as `user` if root names one; returns its id.

        Asked once: a submission whose answer is lost may have been made. Raises SlurmCommandError.
        """
        return (
            self._run_once("sbatch", "--parsable", *options, f"--wrap={command}", user=user).strip().partition(";")[0]
        )

    def cells(self, program: str, arguments: Callable[[str], Sequence[str]], count: int) -> list[list[str]]:
        """Rows of `count` fields. `arguments` must have the program end each field with the word that they are given,
        which no field can hold, and the last one with a newline besides."""
        end = f"#{secrets.token_hex(8)}#"
        output = self._run(program, *arguments(end))
        cells = output.split(end)[:-1]
        if len(cells) % count:
            raise _unexpected(program, output)
        cells[count::count] = [cell.removeprefix("\n") for cell in cells[count::count]]
        return [list(row) for row in zip(*[iter(cells)] * count, strict=True)]

    def _table(self, program: str, options: Sequence[str], fields: Sequence[str]) -> list[list[str]]:
        def arguments(end: str) -> tuple[str, ...]:
            return (*options, "-O", ",".join(f"{name}:{end}" for name in fields))

        return self.cells(program, arguments, len(fields))

    def _run(self, program: str, *arguments: str) -> str:
        """What the command printed; asks again while the controller is busy, with growing pauses."""
        for pause in self._pauses():
            try:
                return self._run_once(program, *arguments)
            except SlurmCommandError as error:
                if not error.busy or self._left() <= pause:
                    raise
            time.sleep(pause)
        return self._run_once(program, *arguments)

    def _pauses(self) -> Iterator[float]:
        """Without a budget for the first tries only; with one they go on at the longest pause."""
        if self.until is None:
            return iter(PAUSES[: self.tries - 1])
        return chain(PAUSES, repeat(PAUSES[-1]))

    def _left(self) -> float:
        """Seconds of the budget."""
        return math.inf if self.until is None else self.until - time.monotonic()

    def _run_once(self, program: str, *arguments: str, user: str | None = None) -> str:
        command = [str(self.bin_dir / program), *arguments]
        shown = " ".join(part for part in (program, *arguments) if "#" not in part)[:200]  # not the fields' marks
        timeout = min(self.timeout, max(self._left(), LEAST_TIMEOUT))
        try:
            done = subprocess.run(
                command, env=self._environment(), stdin=subprocess.DEVNULL, capture_output=True,
                timeout=timeout, check=False, user=user, extra_groups=None if user is None else (),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            status = f"gave no answer within {timeout:.3g} s"
            raise SlurmCommandError(shown, status, "", "Is slurmctld up?", busy=True) from None
        except (OSError, KeyError) as error:  # KeyError: there is no such user
            raise SlurmCommandError(shown, "could not start", str(error), "Set slurm_bin in slurm_ft.yaml") from error
        if done.returncode != 0:
            said = _decode(done.stderr).strip()[:500]
            busy = any(words in said for words in BUSY)
            raise SlurmCommandError(shown, f"failed with {done.returncode}", said, busy=busy)
        return _decode(done.stdout)

    def _environment(self) -> dict[str, str]:
        """A clean one: SQUEUE_FORMAT and the like of whoever calls must not change what we parse."""
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "%s"}
        conf = self.conf or os.environ.get("SLURM_CONF")
        if conf:
            environment["SLURM_CONF"] = str(conf)
        return environment


def _gpus(gres: str) -> int:
    """`gpu:a100:4(S:0-1),gpu:2,shard:8` -> 6."""
    return sum(int(number) for number in re.findall(r"(?:^|,)gpu(?::[^:,(]+)?:(\d+)", gres))


def _unexpected(program: str, output: str) -> SlurmCommandError:
    return SlurmCommandError(program, "answered something unexpected", output[:200])


def _decode(output: bytes) -> str:
    return output.decode("utf-8", "surrogateescape")


def _job(row: Sequence[str]) -> JobRecord:
    (raw_id, address, name, user, partition, state, reason, nodes, restarts, requeue,
     batch, exit_code, submitted, started, ended, stdout, comment, admin_comment,
     batch_host, required, reservation, node_count, time_limit, account, qos) = row  # fmt: skip
    code, signal = exit_status(exit_code)
    return JobRecord(
        raw_id=int(raw_id),
        address=address,
        name=name,
        user=user,
        partition=partition,
        state=state,
        reason=_text(reason),
        nodes=_text(nodes),
        restarts=int(restarts),
        requeue=requeue == "1",
        batch=batch not in ("", "0"),  # Slurm counts launches in it: 2 after a Prolog refused the job (24.11, measured)
        exit_code=code,
        exit_signal=signal,
        submitted=_time(submitted),
        started=_time(started),
        ended=end_time(ended, time.time()),
        stdout=stdout,
        comment=_free_text(comment),
        admin_comment=_free_text(admin_comment),
        batch_host=_text(batch_host),
        required_nodes=_text(required),
        reservation=_text(reservation),
        node_count=count(node_count),
        time_limit=seconds(time_limit),
        account=_text(account),
        qos=_text(qos),
    )


def _node(row: Sequence[str]) -> NodeRecord:
    name, states, reason, comment = row
    flags = frozenset(states.lower().rstrip("*~#!%$@^-").split("+"))
    return NodeRecord(name, flags, _text(reason), _free_text(comment))


def _text(value: str) -> str:
    return "" if value in NOTHING else value


def _free_text(value: str) -> str:
    """A comment: `none` and the like may be somebody's own text there."""
    return "" if value == NULL else value


def _time(value: str) -> float | None:
    return float(value) if value.isdigit() else None

"""What one does with a running lab: submit jobs, look at jobs and nodes, wait, put faults into the kernel log."""

from __future__ import annotations

import os
import pwd
import secrets
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_ft.errors import SlurmCommandError
from slurm_ft.lab.errors import LabError, LabTimeoutError
from slurm_ft.lab.processes import MARKER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_ft.lab.spec import LabSpec, Layout

COMMAND_TIMEOUT_S = 60.0
POLL_S = 0.1

# Our name of a field -> the name that `squeue -O` knows.
JOB_FIELDS: Mapping[str, str] = {
    "state": "State",
    "reason": "Reason",
    "restarts": "RestartCnt",
    "comment": "Comment",
    "admin_comment": "admin_comment",
    "nodelist": "NodeList",
    "exit_code": "exit_code",
    "requeue": "Requeue",
    "start_time": "StartTime",
}

KERNEL_LOG = Path("/dev/kmsg")


class LabClient:
    """Commands against a lab that runs. `Lab` adds starting and stopping."""

    def __init__(self, spec: LabSpec, layout: Layout, slurm_bin: Path) -> None:
        self.spec = spec
        self.layout = layout
        self.slurm_bin = slurm_bin

    @property
    def base(self) -> Path:
        """The lab's directory."""
        return self.layout.base

    @property
    def nodes(self) -> tuple[str, ...]:
        """n1 … nN."""
        return self.layout.node_names

    @property
    def slurm_conf(self) -> Path:
        """What SLURM_CONF must name to talk to this lab."""
        return self.layout.slurm_conf

    @property
    def shared(self) -> Path:
        """A directory that every account of the lab can write to; jobs start in it."""
        return self.layout.shared

    def environment(self, user: str | None = None) -> dict[str, str]:
        """A clean environment for Slurm commands: nothing of the caller's own gets into the lab."""
        user = user or "root"
        home = self.base / "home" / user
        return {
            "PATH": f"{self.slurm_bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(home if home.is_dir() else self.shared),
            "USER": user,
            "LOGNAME": user,
            "LANG": "C.UTF-8",
            "SLURM_CONF": str(self.slurm_conf),
            MARKER: str(self.base),
        }

    def run(
        self,
        *command: str,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> str:
        """Run a Slurm command by name, as root or as `user`, and return what it printed."""
        shown = " ".join(command)
        try:
            done = self._execute(command, user, env or {}, stdin, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise SlurmCommandError(shown, f"did not end within {timeout_s:g} s", "", self._advice()) from error
        except OSError as error:
            raise SlurmCommandError(shown, "could not be started", str(error)) from error
        if done.returncode:
            raise SlurmCommandError(shown, f"ended with {done.returncode}", (done.stderr or done.stdout).strip())
        return done.stdout

    def sbatch(
        self,
        script: str | Path,
        *args: str,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> int:
        """Submit as the ordinary user (or `user`); returns the job id. A `str` is the script itself, not its path."""
        user = user or self.spec.user
        if isinstance(script, Path):
            answer = self.run("sbatch", "--parsable", *args, str(self._readable(script, user)), user=user, env=env)
        else:
            answer = self.run("sbatch", "--parsable", *args, user=user, env=env, stdin=script)
        return int(answer.split(";")[0])

    def job(self, job_id: int | str) -> dict[str, str]:
        """The fields of JOB_FIELDS and `exc_nodes`, as Slurm prints them, empty for `(null)`.

        A finished job is known for ten minutes. Of an array, name one task (`12_3`): the bare id gives its first row.
        """
        # `Field:SUFFIX` prints the field at full length and then the suffix; nobody can guess a random one.
        mark = f"@{secrets.token_hex(8)}@"
        query = ("squeue", "--noheader", "--states=all", f"--jobs={job_id}")
        wide = ",".join(f"{field}:{mark}" for field in JOB_FIELDS.values())
        values = self.run(*query, "-O", wide).split(mark)[:-1]
        if len(values) < len(JOB_FIELDS):
            raise LabError(f"squeue shows no job {job_id}", "Slurm forgets a job ten minutes after its end.")
        job = dict(zip(JOB_FIELDS, map(_plain, values), strict=False))
        job["exc_nodes"] = _plain(self.run(*query, "-o", f"%x{mark}").split(mark)[0])
        return job

    def node(self, name: str) -> tuple[str, str, str]:
        """State (e.g. `drained`), Reason and Comment; the latter two are empty where Slurm has none."""
        mark = f"@{secrets.token_hex(8)}@"
        wide = ",".join(f"{field}:{mark}" for field in ("StateLong", "Reason", "Comment"))
        values = self.run("sinfo", "--noheader", "--Node", f"--nodes={name}", "-O", wide).split(mark)
        state, reason, comment = map(_plain, values[:3])
        return state, "" if reason == "none" else reason, comment

    def wait_for(self, condition: Callable[[], object], timeout_s: float = 60.0, what: str = "the condition") -> None:
        """Poll until the condition is true. Raises LabTimeoutError, with `what` in its text."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise LabTimeoutError(f"{what} did not come true within {timeout_s:g} s", self._advice())
            time.sleep(POLL_S)

    def wait_job(self, job_id: int | str, *states: str, timeout_s: float = 60.0) -> dict[str, str]:
        """Wait until the job is in one of the states (e.g. `COMPLETED`); returns the job."""
        last: dict[str, str] = {}

        def reached() -> bool:
            last.update(self.job(job_id))
            return last["state"] in states

        try:
            self.wait_for(reached, timeout_s)
        except LabTimeoutError as error:
            raise LabTimeoutError(
                f"job {job_id} is not {' or '.join(states)} after {timeout_s:g} s: {last}", self._advice()
            ) from error
        return last

    def wait_node(self, name: str, *states: str, timeout_s: float = 60.0) -> tuple[str, str, str]:
        """Wait until the node is in one of the states (e.g. `idle`, `drained`)."""
        try:
            self.wait_for(lambda: self.node(name)[0] in states, timeout_s)
        except LabTimeoutError as error:
            wanted = " or ".join(states)
            raise LabTimeoutError(
                f"node {name} is not {wanted} after {timeout_s:g} s: {self.node(name)}", self._advice()
            ) from error
        return self.node(name)

    def pci(self, node: str, gpu: int) -> str:
        """The PCI address that this lab gives to a GPU, e.g. `4c1e:03:00.0`."""
        return self.layout.pci(self.spec.gpus_per_node, node, gpu)

    def inject(self, line: str, level: int = 3) -> None:
        """Write one record to the kernel log (level 3: error, as the NVIDIA driver does)."""
        try:
            with KERNEL_LOG.open("wb", buffering=0) as log:
                log.write(f"<{level}>{line}\n".encode())
        except OSError as error:
            raise LabError(
                f"cannot write to {KERNEL_LOG}: {error}", "Run as root; a container needs --privileged for it."
            ) from error

    def inject_xid(self, node: str, gpu: int, code: int, text: str) -> None:
        """Write the line with which the NVIDIA driver reports an Xid of one of the lab's GPUs."""
        address = self.pci(node, gpu).removesuffix(".0")
        self.inject(f"NVRM: Xid (PCI:{address}): {code}, pid='<unknown>', name=<unknown>, {text}")

    def log_of(self, name: str) -> str:
        """The log of `slurmctld`, `munged`, a node, or `slurm_ft`; empty while there is none."""
        parts = [self.layout.log / f"{name}{suffix}" for suffix in (".log", ".out")]
        return next((p.read_text(errors="replace") for p in parts if p.is_file() and p.stat().st_size), "")

    def _execute(
        self, command: tuple[str, ...], user: str | None, env: Mapping[str, str], stdin: str, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        program = self.slurm_bin / command[0]
        account = pwd.getpwnam(user) if user else pwd.getpwuid(os.geteuid())
        return subprocess.run(
            [str(program) if program.is_file() else command[0], *command[1:]],
            env={**self.environment(account.pw_name), **env},
            cwd=self.shared,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
        )

    def _readable(self, script: Path, user: str) -> Path:
        """A copy with the same name (it becomes the job's), because the user may not be able to read the original."""
        copy = Path(self.environment(user)["HOME"]) / script.name
        copy.write_bytes(script.read_bytes())
        copy.chmod(0o755)
        return copy

    def _advice(self) -> str:
        return f"See the logs in {self.layout.log}."


def _plain(value: str) -> str:
    """Empty where Slurm has nothing; otherwise byte for byte."""
    return "" if value == "(null)" else value

"""`Lab`: starts a Slurm cluster on this machine, and ends it with everything that it started."""

from __future__ import annotations

import os
import pwd
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_ft.errors import SlurmCommandError
from slurm_ft.lab import directory, processes, record
from slurm_ft.lab.client import LabClient
from slurm_ft.lab.errors import LabError, LabTimeoutError, PortTakenError
from slurm_ft.lab.installation import Installation, dotted, find_installation
from slurm_ft.lab.ports import free_ports
from slurm_ft.lab.spec import BACKUP_HOST, LabSpec, Layout

if TYPE_CHECKING:
    from types import TracebackType

    from slurm_ft.lab.processes import Started

Say = Callable[[str], None]

PORT_ATTEMPTS = 4
DAEMON_TIMEOUT_S = 30.0
CANCEL_TIMEOUT_S = 3.0  # a job that ignores SIGTERM or a hook that hangs is not worth more
TAIL_LINES = 15
BACKUP = "slurmctld_backup"
MOUNTS = Path("/proc/self/mountinfo")
NOT_STARTED = Layout(base=Path("/nonexistent"), lab_id="", hostname="", ctld_port=0, node_ports=())

# How Slurm's programs say that somebody else has their port.
PORT_TAKEN = "ddress already in use"


def silent(_: str) -> None:
    """The default for `say`: no progress messages."""


class Lab(LabClient):
    """A Slurm cluster on this machine.

    As a context manager it starts on entry and stops on exit. `Lab.attach(directory)` takes over one that another
    process started. If the starter is killed the daemons go on; `slurm-ft lab down --all` ends them.
    """

    def __init__(self, spec: LabSpec | None = None, say: Say = silent) -> None:
        spec = spec or LabSpec()
        _require_root()
        self.slurm: Installation = find_installation(spec.slurm_prefix)
        self._user, self._slurm_user = _account(spec.user), _account(spec.slurm_user)
        self._say = say
        self._started: list[Started] = []
        self._present = False  # there is a directory that is ours to remove
        super().__init__(spec, NOT_STARTED, self.slurm.bin)

    @classmethod
    def attach(cls, base: Path, say: Say = silent) -> Lab:
        """The lab that another process started in this directory."""
        known = record.read_record(base)
        lab = cls(known.spec, say)
        lab.layout, lab._started, lab._present = known.layout, list(known.alive), True
        return lab

    def __enter__(self) -> Lab:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Lab:
        """Start everything and return when all nodes are idle. Leaves nothing behind when that fails."""
        base = directory.make_base(self.spec.base)
        self.layout, self._present = replace(NOT_STARTED, base=base, lab_id=_new_id()), True
        try:
            record.write_record(self.spec, self.layout, ())
            self._start_on_free_ports()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, *, keep: bool = False) -> None:
        """End the jobs, the daemons and everything that these started; remove the directory unless it is to stay."""
        if not self._present:
            return
        self._cancel_jobs()
        self._end_daemons()
        record.forget(self.layout)
        if not (keep or self.spec.keep):
            directory.remove(self.base)
        self._present = False

    @property
    def command(self) -> Path:
        """The `slurm-ft` that the lab's hooks call; every account of the lab can start it."""
        return directory.command(self.layout)

    def leftovers(self) -> list[str]:
        """The names of the lab's processes that are still there, also those its jobs started."""
        return [process.name for process in self._members()]

    def start_node(self, name: str) -> None:
        """Start the slurmd of one node."""
        conf = str(self.slurm_conf)
        self._start_daemon(name, [str(self.slurm.slurmd), "-D", "-s", "-f", conf, "-N", name])

    def kill_node(self, name: str) -> None:
        """End a node's slurmd and its job steps without a farewell, as a power cut would."""
        log = self.layout.log / f"{name}.log"  # slurmd and slurmstepd have it open
        processes.kill(processes.holders(self._members(), log))
        self._started = [process for process in self._started if process.name != name]
        record.write_record(self.spec, self.layout, self._started)

    def stop_controller(self) -> None:
        """End slurmctld in its own way; its state stays on the disk."""
        processes.end([process for process in self._started if process.name == "slurmctld"], 20)
        self._started = [process for process in self._started if process.name != "slurmctld"]
        record.write_record(self.spec, self.layout, self._started)

    def start_controller(self) -> None:
        """Start slurmctld, and wait for its answer."""
        self._start_daemon("slurmctld", [str(self.slurm.slurmctld), "-D", "-s", "-f", str(self.slurm_conf)])
        self._await(self._controller_answers, "slurmctld to answer")

    def start_backup(self) -> None:
        """Start the backup controller of a lab with `backup`; it shares the state directory of the first one.

        It has a host name, an address and a pid file of its own, as on a machine of its own, in namespaces of its own.
        """
        run, hosts = self.layout.run, self.layout.etc / "hosts"
        setup = f"hostname {BACKUP_HOST} && mount --bind {run}/slurmctld_backup {run}/slurmctld"
        setup += f' && mount --bind {hosts} /etc/hosts && exec "$@"'
        slurmctld = [str(self.slurm.slurmctld), "-D", "-s", "-f", str(self.slurm_conf)]
        # In a chroot the root is no mount, and unshare could not make it private: who made the chroot has done so.
        own = "private" if any(line.split()[4] == "/" for line in MOUNTS.read_text().splitlines()) else "unchanged"
        namespaces = ["/usr/bin/unshare", "--uts", "--mount", "--propagation", own]
        self._start_daemon(BACKUP, [*namespaces, "/bin/sh", "-c", setup, "sh", *slurmctld])
        self._await(lambda: "backup) at backup is UP" in self._ping(), "the backup controller to answer")

    def kill_controller(self) -> None:
        """End slurmctld and the hooks that it runs without a farewell, as a power cut of its machine would."""
        roots = [process for process in self._started if process.name == "slurmctld"]
        processes.kill([*roots, *processes.children(self._members(), roots)])
        self._started = [process for process in self._started if process.name != "slurmctld"]
        record.write_record(self.spec, self.layout, self._started)

    def _ping(self) -> str:
        try:
            return self.run("scontrol", "ping", timeout_s=20)
        except SlurmCommandError as error:  # says so too when one of the two does not answer
            return error.output

    def _start_on_free_ports(self, attempts: int = PORT_ATTEMPTS) -> None:
        self.layout = self._layout()
        try:
            self._start_daemons()
        except PortTakenError as error:
            if attempts == 1:
                raise
            self._say(f"{error.what}: trying other ports")
            self._end_daemons()
            self._start_on_free_ports(attempts - 1)

    def _start_daemons(self) -> None:
        directory.populate(self.spec, self.layout, self.slurm, self._user, self._slurm_user)
        self._say(f"Starting Slurm {dotted(self.slurm.version)} with {self.spec.nodes} nodes in {self.base}")
        self.layout.munge_socket.unlink(missing_ok=True)
        self._start_daemon("munged", self._munged_command())
        self._await(self.layout.munge_socket.exists, "munged to listen")
        self.start_controller()
        for name in self.nodes:
            self.start_node(name)
        self._await(self._all_idle, "all nodes to be idle", DAEMON_TIMEOUT_S + self.spec.nodes)

    def _layout(self) -> Layout:
        controller, *nodes = free_ports(self.spec.nodes + 1)
        hostname = socket.gethostname().partition(".")[0]
        return replace(self.layout, hostname=hostname, ctld_port=controller, node_ports=tuple(nodes))

    def _munged_command(self) -> list[str]:
        etc, run, log = self.layout.etc, self.layout.run, self.layout.log
        return [
            str(self.slurm.munged),
            "--foreground",
            "--force",  # the directories below /tmp are fine for a lab
            f"--key-file={etc / 'munge.key'}",
            f"--socket={self.layout.munge_socket}",
            f"--pid-file={run / 'munged.pid'}",
            f"--log-file={log / 'munged.log'}",
            f"--seed-file={run / 'munged.seed'}",
        ]

    def _start_daemon(self, name: str, command: list[str]) -> None:
        output = self.layout.log / f"{name}.out"
        output.write_text("")  # a "port taken" of an earlier attempt must not be read again
        self._started.append(processes.start(name, command, self.environment(), output))
        record.write_record(self.spec, self.layout, self._started)

    def _await(self, condition: Callable[[], bool], what: str, timeout_s: float = DAEMON_TIMEOUT_S) -> None:
        self._say(f"Waiting for {what}")
        deadline = time.monotonic() + timeout_s
        while not condition():
            self._check_daemons()
            if time.monotonic() > deadline:
                raise LabError(f"waited {timeout_s:g} s in vain for {what}", self._logs())
            time.sleep(processes.POLL_S)

    def _check_daemons(self) -> None:
        for process in self._started:
            if not process.alive:
                output = self._tail(process.name)
                kind = PortTakenError if PORT_TAKEN in output else LabError
                raise kind(f"{process.name} ended right after its start", f"It said:\n{output}")

    def _controller_answers(self) -> bool:
        try:
            return " UP" in self.run("scontrol", "ping", timeout_s=10)
        except SlurmCommandError:
            return False

    def _all_idle(self) -> bool:
        try:
            states = self.run("sinfo", "--noheader", "--Node", "--partition=main", "-o", "%T").split()
        except SlurmCommandError:
            return False
        return states == ["idle"] * self.spec.nodes

    def _cancel_jobs(self) -> None:
        """So that job steps end in Slurm's own way. Not essential: what is left is killed afterwards."""
        if not any(process.name == "slurmctld" and process.alive for process in self._started):
            return
        try:
            if jobs := self._jobs():
                self._say(f"Cancelling {len(jobs)} jobs")
                self.run("scancel", "--quiet", *jobs, timeout_s=10)
                self.wait_for(lambda: not self._jobs(), CANCEL_TIMEOUT_S, "the end of all jobs")
        except (SlurmCommandError, LabTimeoutError) as error:
            self._say(f"Killing what is left of the jobs: {error.what}")

    def _jobs(self) -> list[str]:
        """Those that wait, run or complete."""
        return self.run("squeue", "--noheader", "-o", "%A", timeout_s=10).split()

    def _end_daemons(self) -> None:
        self._say("Ending the daemons")
        munged = [process for process in self._started if process.name == "munged"]
        others = [process for process in self._started if process.name != "munged"]
        processes.end(others, 3)
        for _ in range(20):  # what a process started while we looked is found by the next look
            left = [process for process in self._members() if process not in munged]
            if not left:
                break
            processes.end(left, 1)
        processes.end([*munged, *self._members()], 3)
        self._started = []

    def _members(self) -> list[Started]:
        return processes.members(self.base, self.slurm_conf, self._user.pw_uid)

    def _tail(self, name: str) -> str:
        return "\n".join(self.log_of(name).splitlines()[-TAIL_LINES:])

    def _logs(self) -> str:
        names = [process.name for process in self._started if self.log_of(process.name)]
        return "\n".join(["The logs end with:", *(f"--- {name}\n{self._tail(name)}" for name in names)])


def _new_id() -> str:
    """Eight hex digits. They never begin with 0: no real machine has such PCI domains (see Layout.pci)."""
    return f"{0x1000_0000 + secrets.randbelow(0xF000_0000):08x}"


def _require_root() -> None:
    if os.geteuid() != 0:
        raise LabError(
            "a local cluster needs root: slurmd starts jobs as other users",
            "Use sudo, or a container where you are root.",
        )


def _account(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError as error:
        raise LabError(
            f"there is no account {name!r} on this machine", "Name an existing one in the LabSpec."
        ) from error

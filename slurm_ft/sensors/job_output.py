"""The job's own output: a bounded tail of it, read as the job's user, for signatures of the end.

The path is the user's, and so is the file: it may be a link to a secret, a FIFO, a device, or on a file system that
hangs. A child with the user's rights opens it, and only a regular file is read; the parent waits for a bounded time.
What cannot be read is no blindness towards the hardware: the Evidence then has no events and says why.
"""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import stat
import time
from itertools import islice
from pwd import getpwuid

from slurm_ft.model import Evidence
from slurm_ft.sensors.output_path import UNKNOWN, output_path
from slurm_ft.sensors.output_signatures import output_events

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SENSOR = "job_output"
MAX_TAIL = 65536  # bytes
TIMEOUT_S = 5.0
MAX_ENTRIES = 100_000  # of a directory that is searched
BANNER = "==== slurm_ft job "  # opens each attempt in a job's one log
UID, GID, USER = "SLURM_JOB_UID", "SLURM_JOB_GID", "SLURM_JOB_USER"
NODES = "SLURM_JOB_NUM_NODES"
NODELISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")  # the node Epilog of 22.05 has the second (measured)
NO_FILE = f"the job's output could not be read: {os.strerror(errno.ENOENT)}"  # the detail then
_READ, _REFUSED, _CUT = b"r", b"!", b"c"  # how the child's answer begins


def read_job_output(environ: Mapping[str, str], attempt: int, *, timeout: float = TIMEOUT_S) -> Evidence:
    """Look for signatures in what the attempt printed. Never raises."""
    path = output_path(environ)
    uid, gid = environ.get(UID, ""), environ.get(GID, "")
    if path is None or not uid.isdecimal():
        return _nothing("Slurm did not say where the job's output is, or whose")
    user = User(int(uid), int(gid) if gid.isdecimal() else None, environ.get(USER, ""))
    answer = read_tail(path, user, timeout)
    kind, content = answer[:1], answer[1:]
    if kind not in (_READ, _CUT):
        return _nothing(f"the job's output could not be read: {content.decode('utf-8', 'replace')}")
    lines = content.decode("utf-8", "replace").split("\n")[1 if kind == _CUT else 0 :]
    mine = of_this_attempt(lines, attempt)
    if mine is None:
        return _nothing("the job's output does not show where this attempt begins")
    return Evidence(SENSOR, readable=True, events=output_events(mine, alone=_alone(environ)))


def of_this_attempt(lines: Sequence[str], attempt: int = 0) -> Sequence[str] | None:
    """The lines from the last banner on. Without one, all lines of a first attempt, and None for a later one: it may
    have been appended to what an earlier attempt printed, and that must not convict this one."""
    banners = [place for place, line in enumerate(lines) if line.startswith(BANNER)]
    if banners:
        return lines[banners[-1] :]
    return lines if attempt == 0 else None


def _alone(environ: Mapping[str, str]) -> bool:
    """Whether the job surely had this one node only: `n1`, and neither `n1,n2` nor `n[1-2]`."""
    if NODES in environ:
        return environ[NODES] == "1"
    nodes = next((environ[name] for name in NODELISTS if environ.get(name)), "")
    return bool(nodes) and "," not in nodes and "[" not in nodes


def _nothing(reason: str) -> Evidence:
    return Evidence(SENSOR, readable=True, detail=reason)


class User:
    """Whose rights the child takes."""

    __slots__ = ("gid", "name", "uid")

    def __init__(self, uid: int, gid: int | None, name: str) -> None:
        self.uid, self.gid, self.name = uid, gid, name


def read_tail(path: str, user: User, timeout: float) -> bytes:
    """`r` or, if the beginning is missing, `c` and the last MAX_TAIL bytes; `!` and a reason if they cannot be had."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _child(path, user, writer, timeout)
    os.close(writer)
    try:
        return _collect(reader, time.monotonic() + timeout) or _REFUSED + b"no answer in time"
    finally:
        os.close(reader)
        _end(child)


def _collect(reader: int, deadline: float) -> bytes:
    """All that the child writes; nothing if it is not done by the deadline."""
    parts: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([reader], [], [], left)[0]:
            break
        part = os.read(reader, MAX_TAIL)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return b""


def _end(child: int) -> None:
    """Kill and reap the child. One that hangs in a dead file system cannot be killed: it is left behind."""
    os.kill(child, signal.SIGKILL)
    for _ in range(20):
        if os.waitpid(child, os.WNOHANG)[0] == child:
            return
        time.sleep(0.005)


def _child(path: str, user: User, writer: int, timeout: float) -> None:
    """The forked child: never returns, so that no other code of the parent runs twice."""
    try:
        signal.alarm(int(timeout) + 1)  # should the parent die
        _become(user)
        _write(writer, _tail(path))
    except OSError as error:
        _write(writer, _REFUSED + (error.strerror or str(error)).encode())
    except BaseException as error:  # whatever it is, it must end here
        _write(writer, _REFUSED + type(error).__name__.encode())
    finally:
        os._exit(0)


def _become(user: User) -> None:
    if os.geteuid() != 0:
        if os.geteuid() != user.uid:
            raise PermissionError(1, "only root can read as another user")
        return
    gid = user.gid
    if gid is None:
        gid = getpwuid(user.uid).pw_gid  # may ask the network: only here, where time is bounded
    try:
        os.initgroups(user.name, gid)
    except OSError:
        os.setgroups([gid])
    os.setresgid(gid, gid, gid)
    os.setresuid(user.uid, user.uid, user.uid)


def _tail(path: str) -> bytes:
    if UNKNOWN in path:
        path = _only_fit(path)
    # O_NONBLOCK: opening a FIFO must not wait for its other end. O_NOCTTY: nor may a terminal become ours.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return _REFUSED + b"not a regular file"
    start = max(status.st_size - MAX_TAIL, 0)
    return (_CUT if start else _READ) + os.pread(descriptor, MAX_TAIL, start)


def _only_fit(path: str) -> str:
    """The one file whose name fits where UNKNOWN stands for any text. Raises FileNotFoundError for none or several."""
    directory, _, name = path.rpartition("/")
    shape = re.compile(".*".join(re.escape(part) for part in name.split(UNKNOWN)))
    with os.scandir(directory or "/") as entries:
        fits = [entry.name for entry in islice(entries, MAX_ENTRIES) if shape.fullmatch(entry.name)]
    if len(fits) != 1:
        raise FileNotFoundError(2, f"{len(fits)} files fit its pattern")
    return f"{directory}/{fits[0]}"


def _write(writer: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(writer, view) :]

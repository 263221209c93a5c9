"""Work on a user's file with the user's rights and nobody else's, in a child process that may hang without harm.

The path is the user's, and so is the file: it may be a link to a secret, a FIFO, a device, or on a file system that
hangs. So root never opens it; a child that has become the user does, and its parent waits for a bounded time.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import time
from dataclasses import dataclass
from pwd import getpwuid

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable

READ_SIZE = 65536  # bytes
# O_NONBLOCK: opening a FIFO must not wait for its other end. O_NOCTTY: nor may a terminal become ours.
SAFELY = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
REFUSED = b"!"  # how the child's answer begins when it has only a reason to give
NO_ANSWER = "no answer in time"


@dataclass(frozen=True, slots=True)
class User:
    """Whose rights the child takes. `gid` None, or a `name` that is empty: what the system says of the uid."""

    uid: int
    gid: int | None = None
    name: str = ""


class NotRegularError(OSError):
    """What lies at the path is no plain file of the kind that was asked for."""


def open_regular(path: str, flags: int) -> int:
    """A descriptor of a regular file, which is not waited for. Raises OSError, NotRegularError."""
    descriptor = os.open(path, flags | SAFELY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularError(0, "not a regular file")
    return descriptor


def become(user: User) -> None:
    """Take the user's rights, for good. Raises OSError; PermissionError for whoever is neither root nor that user."""
    if os.geteuid() != 0:
        if os.geteuid() != user.uid:
            raise PermissionError(1, "only root can act as another user")
        return
    gid, name = user.gid, user.name
    if gid is None or not name:
        try:
            account = getpwuid(user.uid)  # may ask the network: only here, where time is bounded
        except KeyError:
            if gid is None:
                raise PermissionError(1, f"user id {user.uid} has no account here") from None
        else:
            gid, name = account.pw_gid if gid is None else gid, name or account.pw_name
    try:
        os.initgroups(name, gid)
    except OSError:
        os.setgroups([gid])
    os.setresgid(gid, gid, gid)
    os.setresuid(user.uid, user.uid, user.uid)


def ask_child(user: User, work: Callable[[], bytes], timeout: float) -> bytes:
    """What `work` answers when it runs as the user; REFUSED and a reason if it fails or takes longer than `timeout`
    seconds. Never raises for what goes wrong in the child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _child(user, work, writer, timeout)
    os.close(writer)
    try:
        return _collect(reader, time.monotonic() + timeout) or REFUSED + NO_ANSWER.encode()
    finally:
        os.close(reader)
        _end(child)


def _collect(reader: int, deadline: float) -> bytes:
    """All that the child writes; nothing if it is not done by the deadline."""
    parts: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([reader], [], [], left)[0]:
            break
        part = os.read(reader, READ_SIZE)
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


def _child(user: User, work: Callable[[], bytes], writer: int, timeout: float) -> None:
    """The forked child: never returns, so that no other code of the parent runs twice."""
    try:
        signal.alarm(int(timeout) + 1)  # should the parent die
        become(user)
        _write(writer, work())
    except OSError as error:
        _write(writer, REFUSED + (error.strerror or str(error)).encode())
    except BaseException as error:  # whatever it is, it must end here
        _write(writer, REFUSED + type(error).__name__.encode())
    finally:
        os._exit(0)


def _write(writer: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(writer, view) :]

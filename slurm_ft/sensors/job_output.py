"""The job's own output: a bounded tail of it, read as the job's user, for signatures of the end.

What cannot be read is no blindness towards the hardware: the Evidence then has no events and says why. How a file of
the user's is opened without harm: slurm_ft/as_user.py.
"""

from __future__ import annotations

import errno
import os
import re
from itertools import islice

from slurm_ft import log_marks
from slurm_ft.as_user import NO_ANSWER, User, ask_child, open_regular
from slurm_ft.log_marks import Kind
from slurm_ft.model import Evidence
from slurm_ft.sensors.output_path import STDERR, STDOUT, UNKNOWN, output_path
from slurm_ft.sensors.output_signatures import output_events

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_ft.log_marks import Mark

SENSOR = "job_output"
MAX_TAIL = 65536  # bytes
TIMEOUT_S = 5.0
MAX_ENTRIES = 100_000  # of a directory that is searched
JOB_ID, UID, GID, USER = "SLURM_JOB_ID", "SLURM_JOB_UID", "SLURM_JOB_GID", "SLURM_JOB_USER"
NODES = "SLURM_JOB_NUM_NODES"
NODELISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")  # the node Epilog of 22.05 has the second (measured)
NOWHERE = "/dev/null"
NO_FILE = f"the job's output could not be read: {os.strerror(errno.ENOENT)}"  # the detail then
_READ, _CUT = b"r", b"c"  # how the child's answer begins: all of the file, or its end


def read_job_output(environ: Mapping[str, str], attempt: int, *, timeout: float = TIMEOUT_S) -> Evidence:
    """Look for signatures in what the attempt printed: into its output, and into a file of errors besides (`--error`).

    Never raises.
    """
    output = _read(environ, attempt, timeout)
    errors = environ.get(STDERR, "")
    if errors in ("", NOWHERE, environ.get(STDOUT)) or output.detail.endswith(NO_ANSWER):
        return output
    return _both(output, _read({**environ, STDOUT: errors}, attempt, timeout))


def _both(output: Evidence, errors: Evidence) -> Evidence:
    details = "; ".join(dict.fromkeys(filter(None, (output.detail, errors.detail))))
    return Evidence(SENSOR, readable=True, events=(*output.events, *errors.events), detail=details)


def _read(environ: Mapping[str, str], attempt: int, timeout: float) -> Evidence:
    path, user = output_path(environ), user_of(environ)
    if path is None or user is None:
        return _nothing("Slurm did not say where the job's output is, or whose")
    answer = read_tail(path, user, timeout)
    kind, content = answer[:1], answer[1:]
    if kind not in (_READ, _CUT):
        return _nothing(f"the job's output could not be read: {content.decode('utf-8', 'replace')}")
    lines = content.decode("utf-8", "replace").split("\n")[1 if kind == _CUT else 0 :]
    mine = of_this_attempt(lines, attempt, environ.get(JOB_ID, ""))
    if mine is None:
        return _nothing("the job's output does not show where this attempt begins")
    return Evidence(SENSOR, readable=True, events=output_events(mine, alone=_alone(environ)))


def of_this_attempt(lines: Sequence[str], attempt: int = 0, job: str = "") -> Sequence[str] | None:
    """The lines behind the last mark at which the attempt may begin, without our own marks, which quote evidence.

    Without such a mark, all lines of a first attempt, and None for a later one: it may have been appended to what an
    earlier attempt printed, and that must not convict this one.
    """
    marks = {place: mark for place, line in enumerate(lines) if (mark := log_marks.read(line))}
    begins = [
        place for place, mark in marks.items() if mark.kind is not Kind.ENDED or _ended_before(mark, attempt, job)
    ]
    if not begins and attempt > 0:
        return None
    start = begins[-1] if begins else 0
    return [line for place, line in enumerate(lines[start:], start) if place not in marks]


def _ended_before(mark: Mark, attempt: int, job: str) -> bool:
    """Whether the mark closes another attempt than this one, whose own end another node may have written already."""
    return (bool(job) and mark.job != job) or (mark.restart or 0) < attempt


def user_of(environ: Mapping[str, str]) -> User | None:
    """The job's user as Slurm tells its hooks; None if it does not."""
    uid, gid = environ.get(UID, ""), environ.get(GID, "")
    if not uid.isdecimal():
        return None
    return User(int(uid), int(gid) if gid.isdecimal() else None, environ.get(USER, ""))


def _alone(environ: Mapping[str, str]) -> bool:
    """Whether the job surely had this one node only: `n1`, and neither `n1,n2` nor `n[1-2]`."""
    if NODES in environ:
        return environ[NODES] == "1"
    nodes = next((environ[name] for name in NODELISTS if environ.get(name)), "")
    return bool(nodes) and "," not in nodes and "[" not in nodes


def _nothing(reason: str) -> Evidence:
    return Evidence(SENSOR, readable=True, detail=reason)


def read_tail(path: str, user: User, timeout: float) -> bytes:
    """`r` or, if the beginning is missing, `c` and the last MAX_TAIL bytes; `!` and a reason if they cannot be had."""
    return ask_child(user, lambda: _tail(path), timeout)


def _tail(path: str) -> bytes:
    descriptor = open_regular(the_one_file(path), os.O_RDONLY | os.O_NOFOLLOW)
    start = max(os.fstat(descriptor).st_size - MAX_TAIL, 0)
    return (_CUT if start else _READ) + os.pread(descriptor, MAX_TAIL, start)


def the_one_file(path: str) -> str:
    """`path`, or the one file whose name fits where UNKNOWN stands in it for any text.

    Raises FileNotFoundError for none or several. For a process that has taken the user's rights.
    """
    if UNKNOWN not in path:
        return path
    fits = fitting(path)
    if len(fits) != 1:
        raise FileNotFoundError(2, f"{len(fits)} files fit its pattern")
    return fits[0]


def fitting(path: str) -> list[str]:
    """The files whose name fits. Raises OSError for a directory that cannot be read."""
    directory, _, name = path.rpartition("/")
    shape = re.compile(".*".join(re.escape(part) for part in name.split(UNKNOWN)))
    with os.scandir(directory or "/") as entries:
        return [f"{directory}/{entry.name}" for entry in islice(entries, MAX_ENTRIES) if shape.fullmatch(entry.name)]

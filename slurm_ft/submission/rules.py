"""What of a script spoils a failover: one small rule after the other. Pure.

An error keeps the job from failing over or its training from going on; a warning costs something else, or is a doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from slurm_ft.config import Config, OptIn
from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import comment_tag
from slurm_ft.slurm import nodelist
from slurm_ft.submission.directories import Directory
from slurm_ft.submission.script import Script
from slurm_ft.submission.settings import NO, Place, Setting
from slurm_ft.submission.storage import Kind, Mount, kind_of

NOWHERE = Place()
TAG = '#SBATCH --comment="[slurm_ft]"'
OF_ITS_OWN = ("%a", "%A", "%j", "%J")  # what tells the files of an array's tasks apart
RESUMES = ("slurm-ft", "SLURM_FT_BIN", "CKPT_LAST_")
DEFAULT_LEAD = 60  # seconds of --signal without @


class Level(str, Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule says. `fix` is empty where nothing is to be mended."""

    level: Level
    rule: str
    place: Place
    what: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Submission:
    """What is judged: a script with all options in force, and what surrounds it."""

    script: Script
    config: Config
    directories: tuple[Directory, ...] = ()
    mounts: tuple[Mount, ...] = ()

    def get(self, name: str) -> Setting | None:
        """An option that is set."""
        return self.script.settings.get(name)


def check(submission: Submission) -> tuple[Finding, ...]:
    """All that the rules say, in the order of the rules."""
    return tuple(finding for rule in RULES for finding in rule(submission))


def _readable(submission: Submission) -> Iterator[Finding]:
    for problem in submission.script.problems:
        yield Finding(Level.ERROR, "readable", problem.place, problem.what, "sbatch refuses the script: mend the line")
    for problem in submission.script.ignored:
        fix = "Move it above the first command, or take it out"
        yield Finding(Level.WARNING, "ignored", problem.place, problem.what, fix)


def _asks(submission: Submission) -> Iterator[Finding]:
    if submission.config.opt_in is not OptIn.TAG:
        yield Finding(Level.OK, "asks", NOWHERE, "this site fails over all jobs that may be requeued")
        return
    comment = submission.get("comment")
    tag = comment_tag.read(comment.value) if comment else None
    if comment is None:
        yield Finding(Level.ERROR, "asks", NOWHERE, "the job does not ask for failover: no --comment", f"Add {TAG}")
    elif tag is None:
        what = f"the job does not ask for failover: its comment {comment.value!r} has no [slurm_ft]"
        yield Finding(Level.ERROR, "asks", comment.place, what, "Write [slurm_ft] into it, with the brackets")
    else:
        yield from _limit(submission.config, comment, tag.limit)


def _limit(config: Config, comment: Setting, limit: int | None) -> Iterator[Finding]:
    if limit is not None and limit > config.limit_max:
        what = f"the job asks for {limit} failovers, and this site grants {config.limit_max}"
        yield Finding(Level.WARNING, "asks", comment.place, what, f"Write limit={config.limit_max} or less")
    elif limit == 0:
        yield Finding(Level.WARNING, "asks", comment.place, "limit=0: the job will never fail over", "Raise the limit")
    else:
        yield Finding(Level.OK, "asks", comment.place, "asks for failover")


def _requeue(submission: Submission) -> Iterator[Finding]:
    setting = submission.get("requeue")
    if setting is None:
        what = "no --requeue: whether the job may be requeued depends on the site's JobRequeue"
        yield Finding(Level.WARNING, "requeue", NOWHERE, what, "Add #SBATCH --requeue")
    elif setting.value == NO:
        what = "--no-requeue: Slurm will not start the job again"
        yield Finding(Level.ERROR, "requeue", setting.place, what, "Write --requeue instead")
    else:
        yield Finding(Level.OK, "requeue", setting.place, "may be requeued")


def _open_mode(submission: Submission) -> Iterator[Finding]:
    setting = submission.get("open-mode")
    if setting is None:
        what = "each attempt truncates the output of the one before it (unless the site sets JobFileAppend=1)"
        yield Finding(Level.WARNING, "open_mode", NOWHERE, what, "Add #SBATCH --open-mode=append")
    elif setting.value[:1].lower() == "a":
        yield Finding(Level.OK, "open_mode", setting.place, "keeps the output of earlier attempts")
    else:
        what = f"--open-mode={setting.value}: each attempt truncates the output of the one before it"
        yield Finding(Level.WARNING, "open_mode", setting.place, what, "Write --open-mode=append")


def _output(submission: Submission) -> Iterator[Finding]:
    setting = submission.get("output")
    if setting is None:
        return
    path = setting.value
    if path == "/dev/null":
        what = "--output=/dev/null: nothing will say why an attempt ended"
        yield Finding(Level.WARNING, "output", setting.place, what, "Name a file, such as --output=%x-%j.log")
    elif path.startswith("/"):
        kind, why = kind_of(path, submission.mounts)
        if kind is Kind.LOCAL:
            what = f"--output={path} lies in {why}: each node has its own log"
            yield Finding(Level.WARNING, "output", setting.place, what, "Name a file on shared storage")
    if submission.get("array") and not any(pattern in path for pattern in OF_ITS_OWN):
        what = f"all tasks of the array write into {path}"
        yield Finding(Level.WARNING, "output", setting.place, what, "Put %A_%a into its name")


def _signal(submission: Submission) -> Iterator[Finding]:
    setting, limit = submission.get("signal"), submission.get("time")
    if setting is None:
        what = "no --signal: the training is not told before its time limit, and what it has not saved is lost"
        yield Finding(Level.WARNING, "signal", NOWHERE, what, "Add #SBATCH --signal=USR1@120, and save when it comes")
        return
    number = setting.value.rpartition("@")[2] if "@" in setting.value else str(DEFAULT_LEAD)
    lead = int(number) if number.isascii() and number.isdigit() else 0
    seconds = limit and time_limit(limit.value)
    if not lead:
        what = f"--signal={setting.value} leaves no time to save"
        yield Finding(Level.WARNING, "signal", setting.place, what, "Write the seconds behind it: --signal=USR1@120")
    elif seconds and lead >= seconds:
        what = f"--signal={setting.value} comes at the start: the time limit is {seconds} s"
        yield Finding(Level.WARNING, "signal", setting.place, what, "Give the job more time, or the signal less")
    else:
        yield Finding(Level.OK, "signal", setting.place, f"signalled {lead} s before the time limit")


def time_limit(text: str) -> int | None:
    """Seconds of --time, as sbatch reads it: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S. None for anything else, and for 0."""
    days, dash, rest = text.partition("-") if "-" in text else ("0", "", text)
    parts = rest.split(":")
    if not all(part.isascii() and part.isdigit() for part in (days, *parts)) or len(parts) > 3:
        return None
    numbers = [int(part) for part in parts]
    if dash or len(numbers) == 3:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    else:
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    return ((int(days) * 24 + hours) * 60 + minutes) * 60 + seconds or None


def _nodes(submission: Submission) -> Iterator[Finding]:
    wanted, excluded = submission.get("nodelist"), submission.get("exclude")
    if wanted is None or "/" in wanted.value:
        return
    both = sorted(_names(wanted) & _names(excluded))
    if both:
        what = f"--nodelist and --exclude both name {nodelist.fold(both)}: the job can never start"
        yield Finding(Level.ERROR, "nodes", wanted.place, what, "Take it out of one of them")
    else:
        what = f"--nodelist={wanted.value}: a node that it requires is never excluded, so the job waits for its repair"
        yield Finding(Level.WARNING, "nodes", wanted.place, what, "Leave --nodelist out, or ask with --constraint")


def _names(setting: Setting | None) -> set[str]:
    """The nodes that an option names; none where it names a file, or makes no sense."""
    if setting is None or "/" in setting.value:
        return set()
    try:
        return set(nodelist.expand(setting.value))
    except SlurmFtError:
        return set()


def _resumes(submission: Submission) -> Iterator[Finding]:
    for number, line in submission.script.body:
        if not line.lstrip().startswith("#") and any(word in line for word in RESUMES):
            yield Finding(Level.OK, "resumes", Place(number), "starts from its newest valid checkpoint")
            return
    what = "the script neither calls slurm-ft run nor looks at CKPT_LAST_STEP: each attempt may begin at step 0"
    yield Finding(
        Level.WARNING, "resumes", NOWHERE, what, "Start the training with `slurm-ft run --output-dir DIR -- …`"
    )


def _checkpoints(submission: Submission) -> Iterator[Finding]:
    fix = "Save on storage that all nodes share"
    seen: set[str] = set()
    for one in submission.directories:
        place, where = Place(one.line), one.path or one.node_local
        if not where or where in seen:
            continue
        seen.add(where)
        if one.node_local:
            what = f"checkpoints go to ${one.node_local} ({one.name}), which another node does not see"
            yield Finding(Level.ERROR, "checkpoints", place, what, fix)
            continue
        kind, why = kind_of(one.path, submission.mounts)
        if kind is Kind.LOCAL:
            what = f"checkpoints go to {one.path} ({one.name}), in {why}: another node does not see them"
            yield Finding(Level.ERROR, "checkpoints", place, what, fix)
        elif kind is Kind.DISK:
            what = f"checkpoints go to {one.path} ({one.name}), on a disk of this machine ({why})"
            yield Finding(Level.WARNING, "checkpoints", place, what, "See that all nodes mount it")
        else:
            yield Finding(Level.OK, "checkpoints", place, f"checkpoints go to {one.path} ({why})")


RULES: Sequence[Callable[[Submission], Iterable[Finding]]] = (
    _readable, _asks, _requeue, _open_mode, _output, _signal, _nodes, _resumes, _checkpoints,
)  # fmt: skip

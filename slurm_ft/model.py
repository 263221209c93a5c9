"""The nouns of the product, as frozen typed values that pass from stage to stage.

    sensors -> Evidence -> classify -> Verdict        (on the node)
    NodeVerdict of every node + JobEnd + Ledger -> decide -> Decision   (on the controller)

Nothing here reads a clock, a file or Slurm.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class EventKind(str, Enum):
    """What sort of thing a sensor saw."""

    XID = "xid"  # NVRM: Xid (PCI:...): N
    SXID = "sxid"  # nvidia-nvswitchN: SXid (PCI:...): N
    OFF_BUS = "off_bus"  # "GPU has fallen off the bus" without an Xid of its own
    HOST = "host"  # the node around the GPUs: memory, PCIe, NIC, disk
    GPU_STATE = "gpu_state"  # what NVML or DCGM say of a GPU after the attempt
    OUTPUT = "output"  # a signature in the job's own output
    SLURM = "slurm"  # what Slurm itself says about the job's end


class Domain(str, Enum):
    """Who is to blame. `unknown` is an answer: no drain, no retry, an alert."""

    HARDWARE = "hardware"
    APPLICATION = "application"
    UNKNOWN = "unknown"


class Scope(str, Enum):
    """How far the fault reaches."""

    GPU = "gpu"
    NODE = "node"
    FABRIC = "fabric"
    JOB = "job"


class Certainty(str, Enum):
    """How sure the verdict is."""

    CERTAIN = "certain"
    LIKELY = "likely"
    NONE = "none"


class NodeAction(str, Enum):
    """What the node needs, apart from who is guilty: a contained error may kill a job and leave the node usable."""

    DRAIN = "drain"
    DRAIN_AFTER_REPEAT = "drain_after_repeat"  # usable now; once more of it and it is not (classify/repeats.py)
    NONE = "none"

    @property
    def now(self) -> NodeAction:
        """What is to be done at once."""
        return NodeAction.NONE if self is NodeAction.DRAIN_AFTER_REPEAT else self


@dataclass(frozen=True, slots=True)
class Event:
    """One thing a sensor saw, with the line it came from.

    `name` tells events without a code apart: "gpu_lost", "row_remap_pending", "mce_uncorrected", "python_traceback".
    `pci` is canonical: `domain:bus:device` in lower case without a function, e.g. `0000:3b:00`; None when the line
    names no device. `at` is the uptime in seconds, negative for an earlier boot (of a pasted log: seconds of its own
    clock); None if the source does not date what it says. `line` counts from 1 in
    the input it was read from. `source` is the whole line, bounded by the sensor.
    """

    kind: EventKind
    code: int | None
    pci: str | None
    source: str
    at: float | None = None
    line: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one sensor found in the attempt's window. `readable=False` means that it could not look: not "clean"."""

    sensor: str
    readable: bool
    events: tuple[Event, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How the batch script ended: `code:signal` of SLURM_JOB_EXIT_CODE2."""

    code: int
    signal: int

    @property
    def success(self) -> bool:
        """True for `0:0`. A node failure looks the same on Slurm 22.05 (fields.NODE_FAILURE_EXIT)."""
        return self.code == 0 and self.signal == 0

    def __str__(self) -> str:
        return f"{self.code}:{self.signal}"

    @classmethod
    def parse(cls, text: str) -> ExitStatus:
        """Read `code:signal`. Raises ValueError for anything else."""
        code, _, signal = text.partition(":")
        return cls(int(code), int(signal or 0))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why the attempt ended, as one node sees it. `rule` names the rule that fired, `reason` is one plain sentence."""

    domain: Domain
    cause: str  # short and stable: "xid79", "off_bus", "exit1:0", "no_evidence", "kernel_log_unreadable"
    rule: str
    reason: str
    node_action: NodeAction = NodeAction.NONE
    scope: Scope = Scope.JOB
    certainty: Certainty = Certainty.NONE
    decisive: Event | None = None
    at_link: bool = False  # all that calls for the drain is on a link whose other end may be to blame


@dataclass(frozen=True, slots=True)
class JobKey:
    """Names a job to Slurm. `raw_id` is SLURM_JOB_ID; `address` is what commands must be given.

    The bare id of an array fans out to all of its tasks, so an array task is addressed `ARRAYJOBID_TASKID`. A het job
    is decided on once, for its leader, whose bare id stands for all components in requeue, cancel and release.
    `attempt` is Slurm's restart count: it names the attempt (0 is the first), it is no budget.
    """

    raw_id: int
    address: str
    attempt: int


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What a node left for the controller, in its drain Reason or in its Comment.

    A node may need a reset whoever is to blame, so a drained one need not be `hardware`. `at` is the node's wall clock
    in unix seconds at the decisive event, or when it judged if that has no time. `text` is the evidence line,
    shortened; `at_link`: see Verdict.
    """

    node: str
    raw_id: int
    attempt: int
    domain: Domain
    cause: str
    pci: str | None
    at: float
    text: str
    at_link: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One finished attempt in the ledger. Times are unix seconds."""

    number: int  # Slurm's restart count while it ran
    nodes: str  # a Slurm nodelist expression
    started: float | None
    ended: float
    domain: Domain
    cause: str
    bad_nodes: tuple[str, ...]
    counted: bool  # spent one of the job's failovers
    text: str = ""  # the evidence line
    step: int | None = None  # of the checkpoint it started from, -1: from scratch; None: the job did not say
    drained: tuple[str, ...] = ()  # those of `bad_nodes` that were drained when they were excluded
    saved: int | None = None  # when that checkpoint was written, by the job's own word


@dataclass(frozen=True, slots=True)
class Ledger:
    """The history of one job, kept in Slurm itself (AdminComment)."""

    run_id: str  # given at the first decision; job ids are reused, run ids are not
    attempts: tuple[Attempt, ...] = ()
    excluded: tuple[str, ...] = ()  # nodes that we excluded, not the user's own --exclude

    @property
    def count(self) -> int:
        """Failovers spent so far."""
        return sum(attempt.counted for attempt in self.attempts)


GATE = "gate:"  # begins the cause of a node that refused to start the job: no attempt was made, none is counted
IMAGE_PULL = "image_pull"  # the one cause of an application's end that is reported to the controller


class JobState(str, Enum):
    """What the user sees. The names are those of the user's documents."""

    RUNNING = "Running"
    PENDING = "Pending"
    FAILOVER_IN_PROGRESS = "Pending - failoverinprogress"
    INTERNAL_ERROR = "Pending - internalerror"
    MAX_RETRIES_EXCEEDED = "Pending - maxretriesexceeded"
    IMAGE_PULL_BACKOFF = "Pending - imagepullbackoff"
    FAILED = "Failed"
    COMPLETED = "Completed"
    CANCELLED = "Cancelled"
    PREEMPTED = "Preempted"
    TIMEOUT = "Timeout"


class Action(str, Enum):
    """What the controller does about an ended attempt."""

    REQUEUE = "requeue"  # requeue with exclusion, count + 1
    RECORD = "record"  # Slurm has requeued it already: exclude, and count if hardware
    RELEASE = "release"  # Slurm has requeued it already, for no fault of its own: note it, start at once
    CANCEL = "cancel"  # Slurm has requeued it already, over the limit
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Restraints:
    """What may hold failover back from a job although its hardware is at fault."""

    brake: str = ""  # why nothing at all is failed over at present: paused, or the breaker is open
    fruitless: int = 0  # failovers in a row that brought no newer checkpoint
    progress_stop: int = 0  # so many of them end the job; 0: none do
    rules_off: frozenset[str] = frozenset()  # rules that the site does not let act


@dataclass(frozen=True, slots=True)
class JobEnd:
    """Everything the controller knows about an ended attempt besides the nodes' verdicts."""

    key: JobKey
    exit: ExitStatus
    reason: str  # Slurm's own reason, e.g. NonZeroExitCode, TimeLimit
    nodes: str  # nodelist of the ended attempt
    node_names: tuple[str, ...]
    down_nodes: tuple[str, ...]  # those of them that Slurm holds for dead
    silent_nodes: tuple[str, ...]  # those whose epilog had not ended within the bound
    started: float | None
    ended: float
    restarts_now: int  # Slurm's restart count now; above key.attempt: somebody requeued it already
    opted_in: bool
    requeueable: bool  # a batch job without --no-requeue
    limit: int
    expedited: bool = False  # Slurm itself requeues it: at once if a node Epilog failed, held if none did
    component_ids: tuple[int, ...] = ()  # of a het job: the raw ids of all its components, whose nodes report for it
    required_nodes: tuple[str, ...] = ()  # the user's own --nodelist
    failed_step: ExitStatus | None = None  # the worst end of a step in a batch script that itself ended `0:0`
    step_fails_job: bool = False  # whether the site takes that for a failure of the job
    step: int | None = None  # of the checkpoint that it started from, see Attempt
    saved: int | None = None  # see Attempt
    drained_nodes: tuple[str, ...] = ()  # those of node_names that take no new jobs
    restraints: Restraints = Restraints()


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done, and the basis: the rule that fired and why, in one sentence.

    `exclude` lists the nodes this decision adds; `count` is the number of failovers spent after it.
    """

    action: Action
    state: JobState
    domain: Domain
    cause: str
    count: int
    limit: int
    rule: str
    reason: str
    exclude: tuple[str, ...] = ()
    text: str = ""  # the decisive evidence line, if any
    step: int | None = None  # see Attempt
    drained: tuple[str, ...] = ()  # those of `exclude` that were drained then
    saved: int | None = None  # see Attempt

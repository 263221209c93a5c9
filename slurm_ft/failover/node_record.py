"""How a node's verdict travels to the controller: as text in the node's drain Reason, one record per job.

    slurm_ft: hardware xid79 gpu 0000:3b:00 job 123.0 at 1764429940.123: NVRM: Xid (PCI:0000:3b:00): 79, …

`job 123.0` is SLURM_JOB_ID and restart count; `link` behind the cause says that the other end of a link may be to
blame. An operator reads it in sinfo, the controller parses it. A node that an admin has drained keeps the admin's
Reason; the record then stands in the node's Comment, behind what is there.
"""

from __future__ import annotations

import re

from slurm_ft.model import IMAGE_PULL, Domain, NodeVerdict

PREFIX = "slurm_ft: "
SEPARATOR = " || "
TEXT_LIMIT = 120
# What the doctor's canary appends to the driver's line; a process name in such a line is shorter (15 bytes).
CANARY = "GPU has fallen off the bus. (slurm_ft canary "
KEPT_FOR = 7 * 86400.0  # seconds; nobody takes the record of a job that did not ask for failover out of a Comment
RECORDS_KEPT = 8  # several jobs on one shared node may each leave one
_RECORD = re.compile(
    r"(?P<domain>hardware|application|unknown) (?P<cause>[a-z0-9_:]+)(?P<link> link)? gpu (?P<pci>[0-9a-f:]+|-) "
    r"job (?P<job>\d+)\.(?P<attempt>\d+) at (?P<at>\d+(?:\.\d+)?): (?P<text>.*)"
)


def is_ours(reason: str) -> bool:
    """Whether a drain Reason was written by us; we touch no other."""
    return reason.startswith(PREFIX)


def read(text: str, node: str) -> tuple[NodeVerdict, ...]:
    """All records of `node` in a Reason or in a Comment (there behind foreign text)."""
    matches = (_RECORD.fullmatch(part) for part in _split(text)[1])
    return tuple(_verdict(match, node) for match in matches if match)


def in_reason(reason: str, node: str) -> tuple[NodeVerdict, ...]:
    """The records in a drain Reason of ours; a Reason of somebody else that quotes one holds none."""
    return read(reason, node) if is_ours(reason) else ()


def left_on(node: str, reason: str, comment: str) -> tuple[NodeVerdict, ...]:
    """All records that `node` carries in its Reason and its Comment."""
    return in_reason(reason, node) + read(comment, node)


def is_at_link_alone(reason: str, raw_id: int, attempt: int) -> bool:
    """Whether a drain Reason of ours holds nothing but link faults of this one attempt."""
    if not is_ours(reason):
        return False
    matches = [_RECORD.fullmatch(part) for part in _split(reason)[1]]
    return bool(matches) and all(
        match is not None and match["link"] and (int(match["job"]), int(match["attempt"])) == (raw_id, attempt)
        for match in matches
    )


def add(text: str, verdict: NodeVerdict) -> str:
    """`text` (a Reason of ours, a Comment, or "") with `verdict` added; foreign text before it stays as it is.

    Of two records of one cause in one attempt the first stays: the watcher reports a fault while the job runs, and the
    epilog finds it again.
    """
    foreign, records = _split(text)
    records = [part for part in records if not _stale(part, verdict.at)]
    record = _record(verdict)
    if any(_same_fault(part, record) for part in records):
        return _join(foreign, records)
    return _join(foreign, [*records, record][-RECORDS_KEPT:])


def without_stale(text: str, now: float) -> str:
    """A node's Comment without the records that nobody has come for in a week; `now` is unix seconds."""
    foreign, records = _split(text)
    fresh = [part for part in records if not _stale(part, now)]
    return text if fresh == records else _join(foreign, fresh)


def _stale(record: str, now: float) -> bool:
    match = _RECORD.fullmatch(record)
    return match is not None and float(match["at"]) < now - KEPT_FOR


def _same_fault(one: str, other: str) -> bool:
    return one.partition(" at ")[0] == other.partition(" at ")[0]


def remove(text: str, raw_id: int) -> str:
    """A node's Comment without the records of one job that were for the controller alone.

    Those of other jobs on a shared node stay, and that of an image that could not be loaded, which the status shows.
    """
    foreign, records = _split(text)
    matches = ((part, _RECORD.fullmatch(part)) for part in records)
    return _join(foreign, [part for part, match in matches if match is None or not _is_read(match, raw_id)])


def _is_read(match: re.Match[str], raw_id: int) -> bool:
    return int(match["job"]) == raw_id and match["cause"] != IMAGE_PULL


def _split(text: str) -> tuple[str, list[str]]:
    start = text.find(PREFIX)
    if start < 0:
        return text, []
    return text[:start].removesuffix(" "), [part for part in text[start + len(PREFIX) :].split(SEPARATOR) if part]


def _join(foreign: str, records: list[str]) -> str:
    if not records:
        return foreign
    return (foreign + " " if foreign else "") + PREFIX + SEPARATOR.join(records)


def _record(verdict: NodeVerdict) -> str:
    job = f"{verdict.raw_id}.{verdict.attempt}"
    what = f"{verdict.domain.value} {verdict.cause}{' link' * verdict.at_link} gpu {verdict.pci or '-'}"
    return f"{what} job {job} at {verdict.at:.3f}: {_one_line(verdict.text)}"


def _one_line(text: str) -> str:
    """Printable ASCII without our separator: the line may hold a process name that a user chose."""
    plain = re.sub(r"\|+", "|", re.sub(r"[^ -~]+", "?", text))
    return plain[:TEXT_LIMIT].strip()


def _verdict(match: re.Match[str], node: str) -> NodeVerdict:
    return NodeVerdict(
        node=node,
        raw_id=int(match["job"]),
        attempt=int(match["attempt"]),
        domain=Domain(match["domain"]),
        cause=match["cause"],
        pci=None if match["pci"] == "-" else match["pci"],
        at=float(match["at"]),
        text=match["text"],
        at_link=match["link"] is not None,
    )

"""Which checkpoint a training resumes from, decided once for all ranks.

Rank 0 looks at `<output_dir>/concurrent_checkpoint/checkpoint-*` and at the Trainer's own `<output_dir>/checkpoint-*`
and takes the newest sound one; then each rank checks the files that it wrote. If one of them finds damage, all go on to
the next older one together.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from .._checkpoints.choose import Policy, choose
from .._checkpoints.errors import CheckpointError
from .._checkpoints.files import list_files
from .._checkpoints.finding import VALID, Finding, Level, Verdict
from .._checkpoints.formats.source import DamagedError
from .._checkpoints.manifest import has_manifest, read_manifest
from .._checkpoints.verify_manifest import verify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._checkpoints.choose import Search
    from .._engine.ranks import Ranks

log = logging.getLogger("datastates.llm.decorator")

LATEST = -1  # what the platform's step number is without a step: the newest
STEP_DIGITS = 18  # no training takes more steps

OK, DAMAGED, UNREADABLE = 1, 0, -1  # a rank's vote on a candidate


class ResumeError(CheckpointError):
    """Training cannot resume, and starting from scratch instead would be wrong."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What rank 0 found, and tells the others."""

    path: str = ""  # "" if there is nothing to resume from
    step: int = LATEST
    read: bool = False  # whether rank 0 has read every byte of it
    warnings: tuple[str, ...] = ()  # one sentence each: what was passed over, what is missing
    error: str = ""  # the storage did not answer


def wanted_step(environ: Mapping[str, str]) -> int:
    """Return CKPT_LAST_STEP: the newest step to resume from; LATEST if it is unset, -1, no number or beyond any."""
    text = environ.get("CKPT_LAST_STEP", "").strip()
    if not re.fullmatch(r"[0-9]+", text):
        return LATEST
    digits = text.lstrip("0") or "0"
    if len(digits) > STEP_DIGITS:
        log.warning(
            "[Concurrent Checkpoint] CKPT_LAST_STEP is a number of %d digits (%s…), which is no step: the newest "
            "checkpoint is taken. Set it to a step, or not at all",
            len(digits),
            digits[:STEP_DIGITS],
        )
        return LATEST
    return int(digits)


def choose_together(output_dir: Path, step: int, ranks: Ranks) -> Answer:
    """Return the same answer on every rank. Raises ResumeError when a rank cannot read the storage."""
    refused: frozenset[Path] = frozenset()
    while True:
        answer = _told_by_rank_zero(output_dir, step, refused, ranks)
        if answer.error:
            raise ResumeError(answer.error, "Training was not started")
        if not answer.path or _all_accept(answer, ranks):
            return answer
        refused |= {Path(answer.path)}


def check(path: Path, ranks: Ranks) -> None:
    """Check a checkpoint that the script names itself. Raises ResumeError: nobody asked for another one."""
    if not _all_accept(Answer(str(path)), ranks):
        raise ResumeError(f"{path} is damaged", "Name another one, or pass True: the newest sound one")


def _told_by_rank_zero(output_dir: Path, step: int, refused: frozenset[Path], ranks: Ranks) -> Answer:
    answer = _search(output_dir, step, refused) if ranks.rank == 0 else Answer()
    fields = json.loads(ranks.broadcast(json.dumps(asdict(answer))))
    return Answer(**{**fields, "warnings": tuple(fields["warnings"])})


def _search(output_dir: Path, step: int, refused: frozenset[Path]) -> Answer:
    policy = Policy(at_most_step=None if step == LATEST else step, exclude=refused, cache=False)
    try:
        search = choose(output_dir, "hf", policy)
    except CheckpointError as error:
        return Answer(error=str(error))
    point = search.point
    if point is None:
        return Answer(warnings=_warnings(search))
    return Answer(str(point.path), point.step, point.level is Level.DEEP, _warnings(search))


def _warnings(search: Search) -> tuple[str, ...]:
    sentences = [f"passed over {item.candidate.path}: {item.finding.reason}" for item in search.rejected]
    if search.point is not None and search.point.finding.verdict is Verdict.DEGRADED:
        sentences.append(f"{search.point.path} is not whole: {search.point.finding.reason}")
    return tuple(sentences)


def _all_accept(answer: Answer, ranks: Ranks) -> bool:
    worst = ranks.minimum(_vote(Path(answer.path), ranks, read=answer.read))
    if worst == UNREADABLE:
        raise ResumeError(f"not every rank can read {answer.path}", "The log of the rank that cannot says why")
    return worst == OK


def _vote(path: Path, ranks: Ranks, *, read: bool) -> int:
    """Check the files that this rank wrote, and so is going to read."""
    try:
        finding = VALID if read and ranks.rank == 0 else _own_files(path, ranks)
    except (OSError, CheckpointError) as error:  # a path that is missing on one host is no damage: it is not shared
        log.error("[Concurrent Checkpoint] rank %d on %s cannot read %s: %s", ranks.rank, gethostname(), path, error)
        return UNREADABLE
    if not finding.resumable:
        log.error("[Concurrent Checkpoint] rank %d refuses %s: %s", ranks.rank, path, finding.reason)
    return OK if finding.resumable else DAMAGED


def _own_files(path: Path, ranks: Ranks) -> Finding:
    """Compare this rank's files with the manifest. A Trainer's own checkpoint has no digests to compare with."""
    files = list_files(path, path.parent)
    if not has_manifest(files):
        return VALID
    try:
        manifest = read_manifest(files)
    except DamagedError as error:
        return error.finding
    if manifest is None:
        return VALID
    own = [name for name, file in manifest.files.items() if file.rank % ranks.world_size == ranks.rank]
    return verify(path, manifest, own)

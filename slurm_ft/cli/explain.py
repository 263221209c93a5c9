"""`slurm-ft explain JOB`: what was seen, judged, decided and done about each attempt, as far as the caller may know."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from slurm_ft import config
from slurm_ft.cli import journal_access
from slurm_ft.cli.status_jobs import named_jobs
from slurm_ft.errors import SlurmFtError, UsageError
from slurm_ft.journal_entry import Entry
from slurm_ft.node import event_file, judgement_file
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import JobRecord
from slurm_ft.status.explain import Sources, explain

T = TypeVar("T")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("job", metavar="JOB", help="a job id, or ARRAYJOBID_TASKID")


def run(arguments: argparse.Namespace) -> int:
    """Print the story of the job, or of each task of an array."""
    if not named_jobs([arguments.job]):
        raise UsageError(f"{arguments.job!r} names no job", "Is the variable set?")
    settings = config.load()
    slurm = CommandLine.of(settings).impatient()
    unseen: list[str] = []
    entries = journal_access.read(settings, unseen)
    events = _of_nodes(settings.state_dir / "events", event_file.read, "event files", unseen)
    judged = _of_nodes(settings.state_dir / "judged", judgement_file.read, "judgements", unseen)
    unseen.append("event files and judgements of other machines than this one")
    first = slurm.job(arguments.job)
    jobs = slurm.jobs((f"--jobs={arguments.job}",)) if first else []
    nodes = slurm.nodes()
    every = [
        Sources(raw_id, job, nodes, entries, events, judged, tuple(unseen))
        for raw_id, job in _found(arguments.job, jobs, entries)
    ]
    if not every:
        raise SlurmFtError(
            f"job {arguments.job}: neither Slurm nor the journal knows it", "Slurm forgets a job after MinJobAge"
        )
    print("\n\n".join(explain(sources) for sources in every))
    return 0


def _found(wanted: str, jobs: Sequence[JobRecord], entries: Sequence[Entry]) -> list[tuple[int, JobRecord | None]]:
    """The jobs that Slurm still knows; else those that the journal calls so."""
    if jobs:
        return [(job.raw_id, job) for job in jobs]
    ids = dict.fromkeys(entry.key.raw_id for entry in entries if entry.key.address == wanted)
    return [(raw_id, None) for raw_id in ids]


def _of_nodes(directory: Path, read: Callable[[Path], list[T]], what: str, unseen: list[str]) -> dict[str, list[T]]:
    """Of all nodes whose files are here: one on a real node."""
    try:
        paths = sorted(directory.glob("*.jsonl")) if directory.exists() else []
        return {path.stem: read(path) for path in paths}
    except OSError as error:
        unseen.append(f"the nodes' {what} ({directory}: {error.strerror})")
        return {}

"""What this node's trainings have counted about checkpoints, summed up for node_exporter's textfile collector.

Trainings run as their users and leave small files in a directory where everybody may make files and nobody may touch
another's (checkpoints/counters.py). The sums live as long as the watcher: Prometheus takes its restart for one.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from logging import Logger
from pathlib import Path

from slurm_ft.checkpoints.counters import MOST_BYTES, Counters, parse
from slurm_ft.whole_file import write_whole

PAUSE = 60.0  # seconds between two looks
MOST_FILES = 4096  # that one look reads
OUTLIVED = 7 * 86400.0  # seconds without a change after which a file is removed
ANYBODYS = 0o1733  # whoever may make files here cannot list or replace those of others

METRICS = (
    ("committed", "slurm_ft_checkpoints_committed", "Concurrent checkpoints that became durable."),
    ("failed", "slurm_ft_checkpoints_failed", "Concurrent checkpoints that failed."),
    ("skipped", "slurm_ft_checkpoints_skipped", "Saves left out: the last one was still being written."),
    ("seconds", "slurm_ft_checkpoint_seconds", "Seconds from the capture to the commit, of the committed ones."),
    ("bytes", "slurm_ft_checkpoint_bytes", "Bytes of the committed ones."),
    ("validated", "slurm_ft_checkpoints_validated", "Checkpoints read again and found whole."),
    ("invalid", "slurm_ft_checkpoints_invalid", "Checkpoints that failed validation."),
)


@dataclass(slots=True)
class CheckpointCounters:
    """Reads the directory each minute and replaces the metrics file. Nothing is raised: only numbers are at stake."""

    directory: Path
    output: Path
    log: Logger
    due: float = 0.0  # monotonic
    sums: Counters = field(default_factory=Counters)
    _told: str = ""
    _seen: dict[str, Counters] = field(default_factory=dict)

    def tend(self) -> float:
        """Look, if it is time; returns the seconds until the next look."""
        now = time.monotonic()
        if now >= self.due:
            self.due = now + PAUSE
            try:
                self._look()
            except OSError as error:
                self._complain(f"the checkpoint metrics in {self.output}: {error.strerror or error}")
            except ImportError:
                self._complain("the checkpoint metrics need prometheus-client: pip install 'slurm_ft[metrics]'")
        return max(self.due - time.monotonic(), 0.0)

    def _look(self) -> None:
        make_directory(self.directory)
        found = dict(read_all(self.directory, time.time()))
        for name, counters in found.items():
            self.sums = self.sums.plus(counters.since(self._seen.get(name, Counters())))
        self._seen = found
        write_whole(self.output, text(self.sums), 0o644)
        self._told = ""

    def _complain(self, what: str) -> None:
        if what != self._told:  # it will be the same in a minute
            self.log.warning("%s", what)
        self._told = what


def make_directory(directory: Path) -> None:
    """Raises OSError; also when somebody else has made it."""
    directory.mkdir(parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{directory} is no directory of ours")
    directory.chmod(ANYBODYS)


def read_all(directory: Path, now: float) -> Iterator[tuple[str, Counters]]:
    """Each file's name and what it says. What is no such file is passed over, and what is very old removed."""
    with os.scandir(directory) as entries:
        for entry in islice(entries, MOST_FILES):
            if not entry.name.endswith(".json") or not entry.is_file(follow_symlinks=False):
                continue
            if now - entry.stat(follow_symlinks=False).st_mtime > OUTLIVED:
                Path(entry.path).unlink(missing_ok=True)
                continue
            counters = _read(entry.path)
            if counters is not None:
                yield entry.name, counters


def _read(path: str) -> Counters | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = file.read(MOST_BYTES + 1)
    return parse(content.decode(errors="replace")) if len(content) <= MOST_BYTES else None


def text(sums: Counters) -> str:
    """In Prometheus' text format. Raises ImportError without prometheus-client."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - optional, and costs memory
    from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415

    class Collector:
        def collect(self) -> Iterator[CounterMetricFamily]:
            for name, metric, what in METRICS:
                yield CounterMetricFamily(metric, what, value=getattr(sums, name))

    registry = CollectorRegistry()
    registry.register(Collector())
    return generate_latest(registry).decode()

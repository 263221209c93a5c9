"""`slurm-ft watch`: follows the kernel log (and NVML's events), keeps the event file, fails over jobs that hang.

One process on each compute node. It sleeps in poll(2) until the log grows; a timer runs only while an attempt with a
fatal fault has not ended. All it knows is in files (the log, the event file, the Prolog's notes), so it may be killed
at any time: the next one goes on, and gives the attempts it finds their full grace time.
"""

from __future__ import annotations

import math
import select
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from slurm_ft.classify.facts import Blame
from slurm_ft.classify.findings import findings_of
from slurm_ft.errors import SlurmFtError
from slurm_ft.model import Event, EventKind, Evidence
from slurm_ft.node import attempt_file, event_file
from slurm_ft.node.attempt_file import RunningAttempt
from slurm_ft.node.checkpoint_counters import CheckpointCounters
from slurm_ft.node.event_file import RecordedEvent
from slurm_ft.node.hanging import Outcome, Place, handle
from slurm_ft.node.live import LiveSources
from slurm_ft.node.waiting import Waiting
from slurm_ft.override_file import load_overrides
from slurm_ft.sensors.gpu_inventory import gpus_of_job
from slurm_ft.sensors.kernel_follow import KernelFollower, Sighting
from slurm_ft.sensors.kernel_log import OF_THE_NODE, running_boot

if TYPE_CHECKING:
    from slurm_ft.classify.overrides import Overrides

MARKERS_KEPT = 4096
ENDS_WITHIN = (
    60.0  # seconds after which a job whose script was killed is looked at again; Slurm's UnkillableStepTimeout
)


def watch(place: Place) -> None:
    """Watch the node until a signal ends the process. Raises SlurmFtError or OSError if the log cannot be read."""
    try:
        follower = KernelFollower(place.config.kernel_log)
    except OSError as error:
        what = f"{place.config.kernel_log}: {error.strerror}"
        raise SlurmFtError(what, "Run as root; a container needs --privileged for the kernel log") from error
    watcher = Watcher(place, follower)
    watcher.resume()
    poll = select.poll()
    poll.register(follower, select.POLLIN)
    live = LiveSources(place.config, place.log, poll)
    counters = _counters(place)
    try:
        while True:
            watcher.take_news()
            pauses = [pause for pause in (watcher.look(), live.tend(), counters()) if pause is not None]
            for descriptor, _ in poll.poll(math.ceil(min(pauses) * 1000) if pauses else None):
                watcher.take_live(tuple(live.news(descriptor)))
    finally:
        live.close()


def _counters(place: Place) -> Callable[[], float | None]:
    """What to call in each round; never due where the site wants no metrics of this node."""
    output = place.config.node_metrics_file
    return CheckpointCounters(place.run_dir / "checkpoints", output, place.log).tend if output else lambda: None


def is_fatal(event: Event, overrides: Overrides = MappingProxyType({})) -> bool:
    """Whether the event alone is reason to look at the job again. The lines of one SXid convict only together."""
    if event.kind is EventKind.SXID:
        return True
    (finding,) = findings_of((Evidence(event_file.SENSOR, readable=True, events=(event,)),), overrides)
    return finding.blame is Blame.HARDWARE


class Watcher:
    """What the watcher remembers. `take_news` observes and records, `look` acts."""

    def __init__(self, place: Place, follower: KernelFollower) -> None:
        self._place = place
        self._follower = follower
        self._file = event_file.path_of(place.config.state_dir, place.node)
        self._boot = running_boot()
        self._overrides = load_overrides(place.config.verdict_overrides)
        self._last = -1  # the newest event that the file holds of this boot
        self._markers: dict[str, int] = {}
        self._recorded: Counter[tuple[object, ...]] = Counter()
        self._waiting = Waiting()
        self._host_told: set[str] = set()  # attempts that go on after a fault of the node around the GPUs

    def resume(self) -> None:
        """Take up what the file holds of this boot. Each running attempt gets its full grace time."""
        attempts = self._attempts()
        try:
            recorded = event_file.read(self._file)
        except OSError as error:  # the kernel log still holds most of it
            self._place.log.error("%s cannot be read: %s", self._file, error)
            return
        for one in recorded:
            if one.boot_id == self._boot:
                self._last = max(self._last, one.sequence)
                self._await(one, attempts)

    def take_news(self) -> None:
        """Record what has come into the kernel log, and start the grace time of the attempts that it concerns."""
        batch = list(self._follower.read())
        while batch:
            attempts = self._attempts()
            # A Prolog writes its marker, then its note: after this second look no note lacks its marker.
            behind = list(self._follower.read())
            self._note_markers((*batch, *behind))
            self._take(batch, attempts)
            batch = behind

    def take_live(self, events: Sequence[Event]) -> None:
        """Record what another source has seen. It tells of now, so of the attempts that run now."""
        if not events:
            return
        attempts = self._attempts()
        self._waiting.keep(frozenset(attempt.name for attempt in attempts))
        for event in events:
            owners = tuple(attempt.name for attempt in attempts if self._has_gpu(attempt, event))
            self._store(self._begin([RecordedEvent(self._boot, event_file.LIVE, time.time(), event, owners)], attempts))

    def look(self) -> float | None:
        """Act on every attempt whose time has come; returns the seconds until the next, None for never."""
        if self._waiting.next_due() is None:
            return None
        attempts = {attempt.name: attempt for attempt in self._attempts()}
        self._waiting.keep(frozenset(attempts))
        for name in self._waiting.due(time.monotonic()):
            self._act(attempts[name])
        due = self._waiting.next_due()
        return None if due is None else max(due - time.monotonic(), 0.0)

    def _act(self, attempt: RunningAttempt) -> None:
        """Slurm may be down, and nothing that goes wrong with one job may end the watch over the others."""
        try:
            outcome = handle(self._place, attempt)
        except SlurmFtError as error:
            self._retry(attempt, str(error))
        except Exception:
            self._retry(attempt, traceback.format_exc())
        else:
            self._finish(attempt.name, outcome)

    def _finish(self, name: str, outcome: Outcome) -> None:
        if outcome is Outcome.INNOCENT:
            self._waiting.drop(name)
        elif outcome is Outcome.GOES_ON:
            self._host_told.add(name)
            self._waiting.drop(name)
        elif outcome is Outcome.SETTLED:
            self._waiting.settle(name)
        else:
            self._waiting.look_again(name, time.monotonic() + ENDS_WITHIN)

    def _retry(self, attempt: RunningAttempt, why: str) -> None:
        pause = self._waiting.retry(attempt.name, time.monotonic())
        self._place.log.error("job %s: tried again in %g s: %s", attempt.name, pause, why)

    def _take(self, batch: Sequence[Sighting], attempts: Sequence[RunningAttempt]) -> None:
        self._waiting.keep(frozenset(attempt.name for attempt in attempts))
        news = [
            RecordedEvent(
                self._boot, one.sequence, time.time(), one.event, self._owners(one.sequence, one.event, attempts)
            )
            for one in batch
            if one.event is not None and one.sequence > self._last
        ]
        self._store(self._begin(news, attempts))

    def _begin(self, news: Sequence[RecordedEvent], attempts: Sequence[RunningAttempt]) -> list[RecordedEvent]:
        """Let the grace time of those concerned begin; returns what is worth storing."""
        for one in news:
            self._await(one, attempts)
        return [one for one in news if self._is_worth_storing(one)]

    def _is_worth_storing(self, one: RecordedEvent) -> bool:
        """A program can make the driver repeat itself without end; the first few of each cause say it all."""
        cause = (one.attempts, one.event.kind, one.event.code, one.event.pci)
        if len(self._recorded) > event_file.MAX_CAUSES:
            self._recorded.clear()
        self._recorded[cause] += 1
        return self._recorded[cause] <= event_file.KEPT_PER_CAUSE

    def _store(self, news: Sequence[RecordedEvent]) -> None:
        if not news:
            return
        self._last = max(self._last, news[-1].sequence)
        try:
            event_file.append(self._file, news)
        except OSError as error:  # a full disk costs the record, never the job
            self._place.log.error("%s cannot be written: %s", self._file, error)

    def _await(self, one: RecordedEvent, attempts: Sequence[RunningAttempt]) -> None:
        self._host_told &= {attempt.name for attempt in attempts}
        told = self._host_told if one.event.kind is EventKind.HOST else frozenset()
        concerned = [attempt.name for attempt in attempts if attempt.name in one.attempts and attempt.name not in told]
        if not concerned or not is_fatal(one.event, self._overrides):
            return
        grace = self._place.config.watch_grace
        for name in concerned:
            if self._waiting.add(name, time.monotonic() + grace):
                self._place.log.info("job %s has %g s to end: %s", name, grace, one.event.source)

    def _owners(self, sequence: int, event: Event, attempts: Sequence[RunningAttempt]) -> tuple[str, ...]:
        return tuple(
            attempt.name
            for attempt in attempts
            if self._began_before(attempt, sequence, event) and self._has_gpu(attempt, event)
        )

    def _began_before(self, attempt: RunningAttempt, sequence: int, event: Event) -> bool:
        """An event from before the attempt must not convict it, also when the log is read again from its beginning."""
        start = attempt.start
        if start.boot_id != self._boot:
            return False
        if start.marker is None:  # the Prolog could not write it; then the clocks must do
            return start.uptime is not None and event.at is not None and event.at >= start.uptime
        # A marker that is no longer in the log is older than everything in it.
        return sequence > self._markers.get(start.marker, -1)

    def _has_gpu(self, attempt: RunningAttempt, event: Event) -> bool:
        if event.kind in OF_THE_NODE:
            return True
        gpus = gpus_of_job(
            attempt.gpus,
            configured=self._place.config.gpu_inventory.get(self._place.node, ()),
            cache=self._place.run_dir / "gpus",
        )
        return gpus is not None and event.pci in gpus

    def _note_markers(self, sightings: Sequence[Sighting]) -> None:
        for one in sightings:
            if one.marker:
                self._markers[one.marker] = one.sequence
        for old in list(self._markers)[:-MARKERS_KEPT]:
            del self._markers[old]

    def _attempts(self) -> tuple[RunningAttempt, ...]:
        return attempt_file.running(self._place.run_dir, self._place.node)

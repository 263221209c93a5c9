"""What every part of the controller's hooks works with: configuration, Slurm, log and journal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import Logger

from slurm_ft import journal
from slurm_ft.alert import alert
from slurm_ft.config import Config, Mode
from slurm_ft.journal_entry import Entry, to_json
from slurm_ft.log import open_log
from slurm_ft.slurm import environment
from slurm_ft.slurm.backend import backend
from slurm_ft.slurm.protocol import Slurm


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster's controller, as one hook sees it."""

    config: Config
    slurm: Slurm
    log: Logger
    cluster: str  # "" where nobody says its name

    @classmethod
    def of(cls, config: Config, name: str, environ: Mapping[str, str], budget: float) -> Site:
        """For the hook `name`, which may spend `budget` seconds on Slurm's answers."""
        log = open_log(config, name)
        return cls(config, backend(config, log.error).within(budget), log, environ.get(environment.CLUSTER, ""))

    @property
    def acting(self) -> bool:
        """Whether anything may be changed."""
        return self.config.mode is Mode.ACT

    def write(self, entry: Entry) -> Entry:
        """Log and journal. A full or read-only disk costs the record and not the job."""
        details = {key: value for key, value in to_json(entry).items() if key not in ("v", "at", "told")}
        self.log.info("job %s attempt %d %s: %s", entry.key.address, entry.key.attempt, entry.stage.value, details)
        try:
            journal.append(self.config.state_dir, entry)
        except OSError as error:
            alert(self.log, f"the journal in {self.config.state_dir} cannot be written: {error}. {UNJOURNALED}")
        return entry

    def entries(self, raw_id: int | None = None) -> list[Entry]:
        """What the journal holds, of one job or of all; of another cluster's nothing."""
        try:
            found = journal.entries(self.config.state_dir, raw_id)
        except OSError as error:
            alert(self.log, f"the journal in {self.config.state_dir} cannot be read: {error}. {UNJOURNALED}")
            return []
        return self._own(found)

    def recent(self, seconds: float) -> list[Entry]:
        """What was written into the journal within so many seconds, of all jobs."""
        try:
            return self._own(journal.recent(self.config.state_dir, self.now() - seconds))
        except OSError:
            return []  # said by whoever looked for his own job's

    def _own(self, found: Sequence[Entry]) -> list[Entry]:
        return [entry for entry in found if self.cluster in ("", entry.cluster) or not entry.cluster]

    def now(self) -> float:
        """Unix seconds, as they stand in the journal."""
        return round(time.time(), 3)


UNJOURNALED = "Failovers go on, but one whose hook is killed is not finished: mend the disk"

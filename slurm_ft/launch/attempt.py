"""One attempt beside its training: what is noted about its start, and what becomes of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from slurm_ft import config
from slurm_ft.checkpoints.counters import count_search
from slurm_ft.checkpoints.resume_record import write_record
from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import actions, resume_tag
from slurm_ft.failover.resume_tag import ResumeMark
from slurm_ft.launch import record
from slurm_ft.launch.alert import alert
from slurm_ft.launch.choice import Choice
from slurm_ft.launch.continuation import Conclusion
from slurm_ft.launch.environment import VENDOR
from slurm_ft.launch.follow import Follower
from slurm_ft.launch.saving import SavingWatch
from slurm_ft.launch.start import Training
from slurm_ft.slurm import environment
from slurm_ft.slurm.cli import CommandLine

RETRIES = (0.0, 5.0, 30.0)  # seconds before each try to write the Comment
SETTLE = 5.0  # seconds
SAME_STEP = "same_step"
NO_VALID_CHECKPOINT = "no_valid_checkpoint"
CHECKPOINTING_DISABLED = "checkpointing_disabled"
CHECKPOINTS_LOST = "checkpoints_lost"
NO_ROOM = "no_room"


@dataclass(frozen=True, slots=True)
class Attempt:
    """`follower` is None for a start from scratch: there is nothing to go on from. `saving` is None without the library
    that saves concurrently. `address` is "" outside a job."""

    choice: Choice
    mark: ResumeMark
    address: str
    training: Training
    follower: Follower | None
    saving: SavingWatch | None
    stop: bool

    def accompany(self) -> None:
        """Note the start; watch until it is known whether training went on, and then whether it goes on saving."""
        word, why = self._trouble()
        if word:
            alert(word, why)
        mark = replace(self.mark, alert=word)
        self._note(mark)
        conclusion = self._follow(mark)
        said = self.saving.gave_up() if self.saving is not None else ""
        if said:
            alert(CHECKPOINTING_DISABLED, f"{said}: training goes on without checkpoints. The log says why, above it")
            self._note(replace(mark, alert=CHECKPOINTING_DISABLED), conclusion)

    def _follow(self, mark: ResumeMark) -> Conclusion | None:
        """Watch until it is known whether training went on from the chosen step; None without one, or a sign of it."""
        if self.follower is None or self.choice.step is None:
            return None
        conclusion = self.follower.conclude()
        if conclusion is None:
            _say(f"slurm_ft: not known whether training went on from step {self.choice.step}: it saved nothing new")
            return None
        self._tell(conclusion)
        self._note(replace(mark, alert=conclusion.alert or mark.alert), conclusion)
        if conclusion.alert and self.stop:
            _say("slurm_ft: ending the training (--stop-on-restart-from-zero)")
            self.training.stop()
        return conclusion

    def _trouble(self) -> tuple[str, str]:
        """What is wrong before training starts: a word for the Comment's tag and a sentence, or nothing."""
        rejected = self.choice.search.rejected
        if self.choice.step is None and rejected:
            where = self.choice.search.directory
            return (
                NO_VALID_CHECKPOINT,
                f"none of the {len(rejected)} checkpoints in {where} is whole: starts from scratch",
            )
        if self.choice.lost:
            where = self.choice.search.directory
            return (
                CHECKPOINTS_LOST,
                f"no checkpoint is left in {where}: starts from scratch, not from step {self.choice.before}",
            )
        if self.mark.without_progress:
            return SAME_STEP, _stalled(self.mark)
        if self.choice.room and not self.choice.room.enough:
            return NO_ROOM, f"{self.choice.room}: the next save into {self.choice.search.directory} may fail"
        return "", ""

    def _tell(self, conclusion: Conclusion) -> None:
        if conclusion.went_on:
            _say(f"slurm_ft: confirmed: training went on from step {self.choice.step}: {conclusion.why}")
            return
        alert(
            conclusion.alert,
            f"training did not go on from step {self.choice.step}, although that checkpoint was chosen: "
            f"{conclusion.why}. Does the script load CKPT_LAST_PATH?",
        )

    def _note(self, mark: ResumeMark, conclusion: Conclusion | None = None) -> None:
        record.note(self.choice.search.directory, mark, conclusion)
        if self.address and (conclusion is None or mark.alert):
            _write_tag(self.address, mark)


def begin(choice: Choice, environ: Mapping[str, str], comment: str, *, stop: bool) -> Attempt:
    """Look at how things stand before the training starts. `comment` is the job's, as Slurm holds it now."""
    restart = environ.get(environment.JOB_RESTARTS, "0")
    address = environment.job_key(environ).address if environment.JOB_ID in environ else ""
    directory = choice.search.directory
    before = resume_tag.read(comment) or record.last_mark(directory, address)
    write_record(choice.search, address, restart)
    count_search(choice.search)
    training = Training()
    point = choice.search.point
    return Attempt(
        choice=choice,
        mark=replace(_mark(before, choice.step, restart), saved=choice.saved),
        address=address,
        training=training,
        follower=Follower(training, point.step, directory, point.layout) if point else None,
        saving=SavingWatch(training) if environ.get(VENDOR) else None,
        stop=stop,
    )


def _mark(before: ResumeMark | None, step: int | None, restart: str) -> ResumeMark:
    return resume_tag.following(before, step, int(restart) if restart.isdecimal() else 0)


def _stalled(mark: ResumeMark) -> str:
    where = "from scratch" if mark.step is None else f"from step {mark.step}"
    return (
        f"this attempt starts {where}, as {mark.without_progress} before it did: none left a newer valid checkpoint. "
        "Does the training save often enough to get past its failures?"
    )


def _write_tag(address: str, mark: ResumeMark) -> None:
    """The status and the progress stop read it there. Failing costs the note, never the training."""
    for pause in RETRIES:
        time.sleep(pause)
        try:
            slurm = CommandLine.of(config.load()).impatient()
            if actions.note_resume(slurm, address, mark):
                time.sleep(SETTLE)  # a write of the controller that was under way may have undone ours
                actions.note_resume(slurm, address, mark)
            return
        except SlurmFtError as error:
            failure = error
    _say(f"slurm_ft: the step could not be noted in the job's Comment: {failure}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

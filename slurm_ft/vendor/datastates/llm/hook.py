"""When a training of the Trainer saves: behind each of its step boundaries, beside its own saves.

The place is the one at which the Trainer saves too, after logging and evaluation: an evaluation draws random numbers,
and a checkpoint taken before it would resume into another sequence of them.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._engine.status import Outcome
from . import saver
from .termination import Notice, Signals, board_of

if TYPE_CHECKING:
    from .._engine.engine import Engine
    from .._engine.ranks import Ranks
    from .._engine.settings import Settings

log = logging.getLogger("datastates.llm.decorator")


@dataclass
class Boundary:
    """Which boundary the Trainer last came to.

    It comes twice to the one behind an epoch's last step: within the epoch, and at its end, where evaluations per
    epoch run. The second one is where to save.
    """

    step: int = -1
    open: bool = False  # the end of the epoch is still to come

    def reached(self, step: int, epoch: float | None) -> bool:
        """Note a visit; true if it is the last one of this step."""
        again = step == self.step
        due = self.open if again else epoch is None or epoch != int(epoch)
        self.step, self.open = step, not again and not due
        return due


class StepHook:
    """Called after the Trainer's own work at a step boundary, on every rank at the same step."""

    def __init__(self, trainer: Any, engine: Engine, ranks: Ranks, settings: Settings, signals: Signals) -> None:
        self._trainer, self._engine, self._ranks, self._settings = trainer, engine, ranks, settings
        self._signals, self._board, self._boundary = signals, board_of(ranks), Boundary()

    def __call__(self, model: Any, trial: Any) -> None:
        """Save if it is time. `trial` is set in a hyperparameter search, whose trials would overwrite each other."""
        state = self._trainer.state
        if trial is not None or not self._boundary.reached(state.global_step, state.epoch):
            return
        if self._told_to_end(state.global_step):
            self._save_last(model, state.global_step)
        elif state.global_step >= state.max_steps:
            self._engine.wait(self._settings.commit_timeout)  # the last save is none to skip
            self._save(model, state.global_step)
        elif self._engine.due(state.global_step, state.save_steps):
            self._save(model, state.global_step)

    def _save(self, model: Any, step: int) -> Outcome:
        return self._engine.save(
            step,
            lambda capture: saver.save(self._trainer, model, capture),
            live=self._trainer.model.parameters(),
        )

    def _told_to_end(self, step: int) -> bool:
        if self._signals.notice is not None and self._board.announced() is None:
            self._board.announce(step + self._board.lead)
        announced = self._board.announced()
        return announced is not None and step >= announced

    def _save_last(self, model: Any, step: int) -> None:
        """Save once more if that fits into the time left, finish what is in flight, then do what the signal says."""
        self._board.erase()
        notice = self._signals.notice
        left = self._seconds_left(notice)
        if self._ranks.minimum(int(self._fits(left))):
            log.warning("[Concurrent Checkpoint] saving step %d before the job ends", step)
            self._engine.finish_within(left / 2)
            self._save(model, step)
        else:
            log.warning("[Concurrent Checkpoint] %.0f s are left: too few to save step %d", left, step)
        if not self._engine.finish_within(self._seconds_left(notice)):
            log.error("[Concurrent Checkpoint] the time left was too short to finish the save in flight")
        if notice is not None:
            self._signals.obey(notice)

    def _fits(self, left: float) -> bool:
        """Whether what is in flight and one more save of the last one's size are likely to be durable in time."""
        needed = self._engine.estimate(self._engine.status.bytes)
        return needed is None or needed < left

    def _seconds_left(self, notice: Notice | None) -> float:
        grace = self._settings.term_grace
        return grace if notice is None else max(0.0, notice.at + grace - time.monotonic())

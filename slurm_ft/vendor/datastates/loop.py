"""Concurrent checkpoints for training loops of one's own.

    from datastates import Checkpoints

    state = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "sampler": sampler, "best": 0.0}
    with Checkpoints("out", save_steps=100) as checkpoints:
        for step in range(checkpoints.load(state) + 1, total_steps + 1):
            train_one_step(step)
            checkpoints.save(step, state)

Each entry of the state becomes one file. What has `state_dict()` and `load_state_dict()` is asked for its state (model,
optimizer, scheduler, GradScaler, a stateful sampler or dataloader); anything else is a value, which `load` puts back
into the dictionary. The random number generators of Python, numpy, torch and the GPU come along by themselves, for each
rank. Rank 0 saves what all ranks have in common.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import random_state
from ._checkpoints import Policy, choose
from ._engine.compact import without_pools
from ._engine.engine import Engine
from ._engine.errors import EngineError
from ._engine.settings import parse
from ._engine.status import Outcome, Status
from .llm.resume import LATEST, wanted_step
from .llm.termination import Signals, board_of

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from types import TracebackType

    from ._engine.capture import Capture
    from ._engine.ranks import Ranks

log = logging.getLogger(__name__)

# Entries that every rank has one of its own of.
OF_EACH_RANK = ("sampler", "dataloader")
STEP = "step"
RNG = "rng"


class ResumeError(EngineError):
    """There is no checkpoint to resume from where one is needed, or it does not fit the state."""


class Checkpoints:
    """The checkpoints `checkpoint-<step>` of one directory. Keyword arguments are the engine's settings."""

    def __init__(self, directory: Path | str, *, ranks: Ranks | None = None, **settings: object) -> None:
        self.engine = Engine(directory, parse(settings), ranks)
        self._signals = Signals()
        self._board = board_of(self.engine.ranks)
        self._fenced: set[int] = set()
        self.stopping = False  # the last save is taken and the process was told to end: leave the loop

    def __enter__(self) -> Checkpoints:
        """Begin to note SIGTERM and SIGUSR1: they bring a save at the next step."""
        self._signals.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish what is in flight, and end as SIGTERM would have ended the process."""
        self.close()
        if self.stopping and self._signals.notice is not None and kind is None:
            self._signals.obey(self._signals.notice)
        self._signals.restore()

    def save(self, step: int, state: Mapping[str, Any], *, now: bool = False) -> Outcome | None:
        """Save in the background if it is time to, or `now`. Collective. None: it was not time."""
        told = self._told_to_save(step)
        if told:  # leave the new one, which is worth more, half of the time
            self.engine.finish_within(self._seconds_left() / 2)
        if not (told or now or self.engine.due(step)):
            return None
        self._fence_loads(state)
        outcome = self.engine.save(step, lambda capture: self._write(capture, step, state))
        if told:
            self._after_notice()
        return outcome

    def latest(self) -> Path | None:
        """Return the newest checkpoint whose every byte is as it was written. Call it on one rank, or on all."""
        wanted = wanted_step(os.environ)
        policy = Policy(at_most_step=None if wanted == LATEST else wanted, cache=False)
        found = choose(self.engine.root, "concurrent", policy)
        for rejected in found.rejected:
            log.warning("passed over %s: %s", rejected.candidate.path, rejected.finding.reason)
        return found.point.path if found.point else None

    def load(self, state: MutableMapping[str, Any], path: Path | str | None = None) -> int:
        """Put the newest valid checkpoint's state, or that of `path`, into `state`; return its step.

        0 if there is none to resume from, or ResumeError with `strict_resume`. Collective: rank 0 chooses.
        """
        chosen = self.engine.ranks.broadcast(str(path or self.latest() or "") if self.engine.ranks.rank == 0 else "")
        if not chosen:
            if self.engine.settings.strict_resume:
                raise ResumeError(f"no valid checkpoint in {self.engine.root}", "Set strict_resume=False to begin anew")
            return 0
        self.engine.fence()
        step = self._restore(Path(chosen), state)
        self.engine.resumed_from(chosen)
        return step

    def fence(self) -> None:
        """Call it before editing parameters or optimizer state by anything but an optimizer's step."""
        self.engine.fence()

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether the last save is durable or given up."""
        return self.engine.wait(timeout)

    def close(self) -> None:
        """Finish what is in flight."""
        self.engine.close()

    @property
    def status(self) -> Status:
        """Counters and times."""
        return self.engine.status

    # --- inside ----------------------------------------------------------------------------------------------------

    def _told_to_save(self, step: int) -> bool:
        """Whether a signal asked for a save after this step; all ranks answer alike."""
        if self._signals.notice is not None and self._board.announced() is None and not self.stopping:
            self._board.announce(step + self._board.lead)
        announced = self._board.announced()
        if announced is None or step < announced:
            return False
        self._board.erase()
        return True

    def _seconds_left(self) -> float:
        """Return the time until SIGKILL, counted from SIGTERM; all of it for a rank that got none yet."""
        notice = self._signals.notice
        spent = time.monotonic() - notice.at if notice is not None else 0.0
        return max(self.engine.settings.term_grace - spent, 0.0)

    def _after_notice(self) -> None:
        """After SIGTERM all ranks leave together, also those it has not reached. SIGUSR1 wants no more than this."""
        notice = self._signals.notice
        told_to_end = notice is not None and notice.signal is signal.SIGTERM
        if self.engine.ranks.minimum(-int(told_to_end)) == 0:
            self._signals.notice = None
            return
        self.stopping = True
        self.engine.finish_within(self._seconds_left())

    def _write(self, capture: Capture, step: int, state: Mapping[str, Any]) -> None:
        rank = self.engine.ranks.rank
        for name, value in state.items():
            if rank == 0 or name in OF_EACH_RANK:
                file = f"{name}-{rank}.pt" if name in OF_EACH_RANK else f"{name}.pt"
                capture.torch_save(without_pools(_state_of(value)), capture.directory / file)
        capture.torch_save(random_state.take(), capture.directory / f"{RNG}-{rank}.pt")
        if rank == 0:
            capture.torch_save(step, capture.directory / f"{STEP}.pt")

    def _restore(self, directory: Path, state: MutableMapping[str, Any]) -> int:
        rank = self.engine.ranks.rank
        for name, value in list(state.items()):
            file = f"{name}-{rank}.pt" if name in OF_EACH_RANK else f"{name}.pt"
            saved = _read(directory / file)
            if hasattr(value, "load_state_dict"):
                value.load_state_dict(saved)
            else:
                state[name] = saved
        random_state.put_back(_read(directory / f"{RNG}-{rank}.pt"))
        return int(_read(directory / f"{STEP}.pt"))

    def _fence_loads(self, state: Mapping[str, Any]) -> None:
        """Loading a model's state while it is being saved must not tear it. Optimizers are the engine's business."""
        from torch.nn import Module  # noqa: PLC0415 - heavy

        for value in state.values():
            if isinstance(value, Module) and id(value) not in self._fenced:
                self._fenced.add(id(value))
                hook: Any = value.register_load_state_dict_pre_hook
                hook(lambda *_: self.engine.fence())


def _state_of(value: Any) -> Any:
    return value.state_dict() if hasattr(value, "state_dict") else value


def _read(path: Path) -> Any:
    import pickle  # noqa: PLC0415 - only for its error

    import torch  # noqa: PLC0415 - heavy

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ResumeError(
            f"{path.parent} has no {path.name}", "Does the state have an entry more, or the job more ranks, than then?"
        ) from error
    except pickle.UnpicklingError as error:
        raise ResumeError(
            f"{path} holds objects of a class of your own", "Name it in torch.serialization.add_safe_globals"
        ) from error

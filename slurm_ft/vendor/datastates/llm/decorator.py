"""Concurrent checkpointing for a Hugging Face Trainer, in the three lines that a training script has for it.

    from datastates.llm import DecoratedCheckpointing
    engine = DecoratedCheckpointing(runtime_config={"host_cache_size": 50, "trainer": trainer}, rank=args.local_rank)
    trainer.train(resume_from_checkpoint=os.getenv("CKPT_LAST_STEP") is not None)

The trainer's `train` then resumes from the newest sound checkpoint, and saves in the background below
`<output_dir>/concurrent_checkpoint`. The Trainer's own checkpoints go on as before and are never touched.
"""

from __future__ import annotations

import logging
import os
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._engine.engine import Engine
from .._engine.errors import SettingsError
from .._engine.paths import committed
from .._engine.ranks import discover
from .._engine.settings import parse
from . import resume, worlds
from .hook import StepHook
from .log import show
from .termination import Signals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._engine.ranks import Ranks

log = logging.getLogger(__name__)

DIRECTORY = "concurrent_checkpoint"  # below the Trainer's output_dir


class DecoratedCheckpointing:
    """Makes a Trainer save concurrently and resume from what it saved.

    `runtime_config` holds the Trainer as "trainer" and any setting of docs/concurrent_checkpointing.md; raises
    SettingsError (a ValueError) for an unknown or impossible one. `rank` may be -1, or the local rank that a launcher
    passes: the real one comes from torch.distributed or the launcher's environment. Create it on every rank.
    """

    def __init__(self, runtime_config: Mapping[str, object], rank: int = -1) -> None:  # noqa: ARG002 - see above
        show()
        self._settings = parse(runtime_config)
        self._trainer: Any = self._settings.trainer
        if not hasattr(self._trainer, "_save_checkpoint"):
            raise SettingsError(
                f"checkpoint setting 'trainer' is {type(self._trainer).__name__}",
                "It must be the transformers.Trainer that trains; for a loop of your own use datastates.Checkpoints",
            )
        self._ranks = discover()
        self._engine: Engine | None = None
        self._hook: StepHook | None = None
        self._retired = False
        self._decorate()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is in flight; false if that took longer than `timeout` seconds."""
        return self._engine is None or self._engine.wait(timeout)

    def close(self) -> None:
        """Finish what is in flight. A training does it by itself at its end."""
        if self._engine is not None:
            self._engine.close()
            self._engine = self._hook = None

    @property
    def _root(self) -> Path:
        return Path(self._trainer.args.output_dir) / DIRECTORY

    def _decorate(self) -> None:
        """Wrap the methods of this one Trainer. A second object for it, as in a notebook, takes over from the first."""
        trainer = self._trainer
        earlier = vars(trainer).get("_datastates")
        if earlier is not None:
            earlier._retired = True
        trainer._datastates = self
        trainer.train = self._train(trainer.train)
        trainer._maybe_log_save_evaluate = self._after_step(trainer._maybe_log_save_evaluate)
        trainer._load_best_model = self._fenced(trainer._load_best_model)

    def _train(self, train: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(train)
        def wrapper(resume_from_checkpoint: Any = None, *args: Any, **options: Any) -> Any:
            if self._retired:
                return train(resume_from_checkpoint, *args, **options)
            path = self._resume_point(resume_from_checkpoint)
            signals = Signals()
            self._open(path, signals)
            signals.install()
            try:
                return train(path, *args, **options)
            finally:
                signals.restore()
                self.close()

        return wrapper

    def _open(self, resumed_from: str | None, signals: Signals) -> None:
        self.close()
        self._engine = Engine(self._root, self._settings, self._ranks)
        if resumed_from is not None:
            self._engine.resumed_from(Path(resumed_from))
        self._hook = StepHook(self._trainer, self._engine, self._ranks, self._settings, signals)

    def _after_step(self, log_save_evaluate: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(log_save_evaluate)
        def wrapper(tr_loss: Any, grad_norm: Any, model: Any, trial: Any, *args: Any, **options: Any) -> Any:
            result = log_save_evaluate(tr_loss, grad_norm, model, trial, *args, **options)
            if self._hook is not None:
                self._hook(model, trial)
            return result

        return wrapper

    def _fenced(self, load_best_model: Callable[..., Any]) -> Callable[..., Any]:
        """It writes into the weights without an optimizer step: nothing may still be reading them."""

        @wraps(load_best_model)
        def wrapper(*args: Any, **options: Any) -> Any:
            if self._engine is not None:
                self._engine.fence()
            return load_best_model(*args, **options)

        return wrapper

    def _resume_point(self, wanted: Any) -> str | None:
        """Return the path that `trainer.train` gets: True means the newest sound one, a path means itself."""
        if isinstance(wanted, str | os.PathLike):
            resume.check(Path(wanted), self._ranks)
            worlds.check(self._trainer, Path(wanted), self._ranks.world_size)
            return os.fspath(wanted)
        if not wanted:
            self._warn_of_earlier_training()
            return None
        found = get_last_checkpoint_preprocess(
            self._trainer.args.output_dir,
            resume.wanted_step(os.environ),
            self._ranks,
            strict=self._settings.strict_resume,
        )
        if found is not None:
            worlds.check(self._trainer, Path(found), self._ranks.world_size)
        return found

    def _warn_of_earlier_training(self) -> None:
        try:
            there = committed(self._root)
        except OSError:  # each save will say what is the matter with it
            return
        if there and self._ranks.rank == 0:
            log.warning(
                "[Concurrent Checkpoint] starting from scratch beside %s: a later resume takes the newest of both "
                "trainings until this one has passed it. Move the directory away to begin anew",
                there[0][1],
            )


def get_last_checkpoint_preprocess(
    output_dir: str | os.PathLike[str], step: int = resume.LATEST, ranks: Ranks | None = None, *, strict: bool = False
) -> str | None:
    """Return the newest sound checkpoint up to `step` (-1: the newest of all), or None to start from scratch.

    Raises ResumeError when the storage does not answer, and, if `strict`, when there is nothing to resume from. Every
    rank calls it.
    """
    ranks = ranks or discover()
    answer = resume.choose_together(Path(output_dir), step, ranks)
    for sentence in answer.warnings if ranks.rank == 0 else ():
        log.warning("[Concurrent Checkpoint] %s", sentence)
    if not answer.path:
        if ranks.rank == 0:
            log.error("[Concurrent Checkpoint] No Checkpoint found with step: %d", step)
        if strict:
            raise resume.ResumeError(
                f"no sound checkpoint in {output_dir}", "strict_resume forbids to start from scratch"
            )
        return None
    if ranks.rank == 0:
        log.info("[Concurrent Checkpoint] resuming from %s", answer.path)
        if step not in (resume.LATEST, answer.step):
            log.warning(
                "[Concurrent Checkpoint] step %d was asked for, step %d is the newest up to it", step, answer.step
            )
    return answer.path

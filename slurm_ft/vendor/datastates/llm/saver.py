"""One save of the Trainer, by the Trainer's own saver, into a capture.

`Trainer._save_checkpoint` knows the layout of every mode (plain, DDP, DeepSpeed, FSDP, PEFT); running it unchanged
gives the files that the framework would write. Around it stands what a second save must not change: it is not the
Trainer's own, so the Trainer has to go on as if it had not happened.

Its `TrainingArguments` are never touched: the saver pickles them into training_args.bin. Rotation sees one
checkpoint only, because the directory that it looks into is new for each save.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .sinks import redirected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .._engine.capture import Capture

STATE_FILE = "trainer_state.json"  # transformers.trainer.TRAINER_STATE_NAME


def save(trainer: Any, model: Any, capture: Capture) -> None:
    """Run the Trainer's saver for its current step. Every rank calls it at the same step: it has collectives."""
    with _own_directory(trainer, capture.run_dir), _unchanged(trainer) as best, redirected(capture):
        trainer._save_checkpoint(model, trial=None)
        _mend_state_file(trainer, capture.directory, best)


@contextmanager
def _own_directory(trainer: Any, run_dir: Path) -> Iterator[None]:
    """Let the saver write below `run_dir`, and push nothing to a hub: the files are not there yet."""
    overrides = {
        "_get_output_dir": lambda *_, **__: str(run_dir),
        "_push_from_checkpoint": lambda *_, **__: None,
    }
    before = {name: vars(trainer)[name] for name in overrides if name in vars(trainer)}
    vars(trainer).update(overrides)
    try:
        yield
    finally:
        for name in overrides:
            del vars(trainer)[name]
        vars(trainer).update(before)


@contextmanager
def _unchanged(trainer: Any) -> Iterator[str | None]:
    """Put back what the saver changes in the live state; yields the best checkpoint's path before it.

    With two callbacks of one class, each save appends to `stateful_callbacks`. And when the best step is the one being
    saved, the saver points `best_model_checkpoint` to its own directory, which is renamed when the save is committed.
    """
    state = trainer.state
    best, callbacks = state.best_model_checkpoint, copy.deepcopy(state.stateful_callbacks)
    try:
        yield best
    finally:
        state.best_model_checkpoint = best
        state.stateful_callbacks = callbacks


def _mend_state_file(trainer: Any, directory: Path, best: str | None) -> None:
    """Write trainer_state.json again if it names the capture's directory as the best checkpoint."""
    if trainer.args.should_save and trainer.state.best_model_checkpoint != best:
        trainer.state.best_model_checkpoint = best
        trainer.state.save_to_json(str(directory / STATE_FILE))

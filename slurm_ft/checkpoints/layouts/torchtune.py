"""torchtune: `output_dir/epoch_N/` holds weights alone; optimizer and progress are in one file for all epochs.

`output_dir/recipe_state/recipe_state.pt` is overwritten with each epoch, so only the newest epoch can be resumed from:
older weights with a newer optimizer are no state that the training ever had. Its `epochs_run` is N + 1
(torchtune/training/checkpointing/, recipes/full_finetune_*.py, version 0.6.1).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import UnreadableCheckpointError
from ..finding import Finding, Level, Verdict, incomplete, inconsistent
from ..formats.source import opened
from ..formats.torch_file import check_torch_file, read_torch_object
from ..layout import Layout, OwnLatest, Part, ResumeBy, ResumePoint, State
from ..states import states_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..files import Files

RECIPE_STATE = "recipe_state/recipe_state.pt"
EPOCHS = "epochs_run"
ADAPTER = "adapter_model.pt"
WEIGHTS = ("*.safetensors", "*.bin", ADAPTER)


def _recipe_state(files: Files) -> Path:
    return files.path.parent / RECIPE_STATE


def check(files: Files, level: Level) -> Iterator[Finding]:
    """The shared recipe state has to be whole, and of this epoch."""
    path = _recipe_state(files)
    try:
        with opened(path, RECIPE_STATE) as source:
            yield from check_torch_file(source, level).findings
    except FileNotFoundError:
        yield Finding(Verdict.WEIGHTS_ONLY, f"{RECIPE_STATE} is missing: it has the optimizer")
        return
    except OSError as error:
        raise UnreadableCheckpointError(path, error) from error
    yield from _of_this_epoch(files, path)


def _of_this_epoch(files: Files, path: Path) -> Iterator[Finding]:
    tree = read_torch_object(path)
    epochs = tree.get(EPOCHS) if isinstance(tree, dict) else None
    match = TORCHTUNE.entry.fullmatch(files.name)
    if tree is None:
        yield incomplete(f"{RECIPE_STATE} cannot be read: it has the optimizer")
    elif isinstance(epochs, int) and match and epochs != int(match["step"]) + 1:
        yield inconsistent(f"{RECIPE_STATE} is of epoch {epochs - 1}: its optimizer does not belong to these weights")


def states(files: Files) -> Iterator[tuple[State, str]]:
    """Return what the recipe state carries."""
    tree = read_torch_object(_recipe_state(files))
    yield from ((state, RECIPE_STATE) for state, _ in states_in(tree))
    if isinstance(tree, dict) and EPOCHS in tree:
        yield State.STEP, RECIPE_STATE


def resume(point: ResumePoint) -> ResumeBy:
    """Overrides for `tune run`. The paths are relative to the recipe's output_dir; its checkpoint_dir stays."""
    epoch = point.path.name
    given = ["resume_from_checkpoint=True", f"checkpointer.recipe_checkpoint={RECIPE_STATE}"]
    if (point.path / ADAPTER).is_file():
        return ResumeBy(arguments=(*given, f"checkpointer.adapter_checkpoint={epoch}/{ADAPTER}"))
    weights = sorted(path.name for path in point.path.iterdir() if path.suffix in (".safetensors", ".bin"))
    files = ",".join(f"{epoch}/{name}" for name in weights)
    return ResumeBy(arguments=(*given, f"checkpointer.checkpoint_files=[{files}]"))


TORCHTUNE = Layout(
    name="torchtune",
    title="torchtune",
    entry=re.compile(r"epoch_(?P<step>[0-9]{1,18})"),
    parts=(Part(state=State.MODEL, files=WEIGHTS),),
    recognise=lambda files: files.has(*WEIGHTS) and _recipe_state(files).parent.is_dir(),
    check=check,
    states=states,
    own_latest=OwnLatest.NUMBER,
    resume=resume,
)

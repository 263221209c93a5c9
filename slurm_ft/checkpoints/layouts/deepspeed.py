"""DeepSpeed's own loop: `engine.save_checkpoint(save_dir)` writes `save_dir/<tag>/` and `save_dir/latest`.

Rank 0 writes `latest` before the final barrier, so it may name a tag whose other ranks never finished; without it the
engine says so in a warning and starts at step 0 (deepspeed/runtime/engine.py). A tag may have any name; the default is
`global_step<N>`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..formats.deepspeed_tag import MODEL, read_world
from ..formats.torch_file import read_torch_object
from ..layout import Layout, OwnLatest, Part, ResumeBy, ResumePoint, State, Tracker
from ..states import states_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import Files


def step(files: Files) -> int | None:
    """Return `global_steps` of a model file."""
    world = read_world(files, "")
    return world.step if world else None


def world_size(files: Files) -> int | None:
    """Return data-parallel times model-parallel size."""
    world = read_world(files, "")
    return world.data_parallel * world.model_parallel if world else None


def states(files: Files) -> Iterator[tuple[State, str]]:
    """Return what the first model file carries besides the model."""
    for name in files.names:
        if MODEL.fullmatch(name):
            tree = read_torch_object(files.location(name))
            kept = {key: value for key, value in tree.items() if value is not None} if isinstance(tree, dict) else {}
            yield from ((state, name) for state, _ in states_in(kept))
            return


def resume(point: ResumePoint) -> ResumeBy:
    """`load_checkpoint(dir)` reads `latest`; a script may also pass the tag."""
    return ResumeBy(environ={"CKPT_DEEPSPEED_TAG": point.path.name})


DEEPSPEED = Layout(
    name="deepspeed",
    title="DeepSpeed",
    entry=re.compile(r"global_step(?P<step>[0-9]+)|(?![.])(?!concurrent_checkpoint$).*"),
    parts=(
        Part(state=State.MODEL, files=("*_model_states.pt",)),
        Part(state=State.OPTIMIZER, files=("*_optim_states.pt", "mp_rank_*_model_states.pt")),
        Part(state=State.STEP, files=("*_model_states.pt",)),
    ),
    recognise=lambda files: any("/" not in name for name in files.matching("*_states.pt")),
    step=step,
    world_size=world_size,
    same_world=True,
    states=states,
    own_latest=OwnLatest.TRACKER,
    trackers=(Tracker("latest", lambda point: point.path.name),),
    resume=resume,
    exports=("CKPT_DEEPSPEED_TAG",),
)

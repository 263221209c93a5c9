"""torchtitan: `<dump folder>/checkpoint/step-N/`, a DCP directory that holds its `train_state` too.

It takes the highest N that has a `.metadata`, whatever the storage files are, and keeps the highest numbers when it
deletes, whatever they are: so a broken newer one is moved aside. The last step of a run may be saved as a model alone
(torchtitan/components/checkpointer/dcp.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..finding import Finding, Level, Verdict
from ..formats.dcp import METADATA, read_metadata
from ..formats.stub_pickle import OpaqueError
from ..layout import Layout, OwnLatest, Part, ResumeBy, ResumePoint, State
from .dcp import DCP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import Files

INDEX = "model.safetensors.index.json"
TRAIN_STATE, OPTIMIZER = "train_state", "optimizer"


def _names(files: Files) -> tuple[str, ...]:
    try:
        return read_metadata(files.read_bytes(METADATA) or b"").names
    except OpaqueError:
        return ()


def recognise(files: Files) -> bool:
    """Scripts of one's own may use the same names; only torchtitan saves a train_state."""
    return any(name.startswith(TRAIN_STATE) for name in _names(files))


def check(files: Files, level: Level) -> Iterator[Finding]:
    """A model alone is the end of a run, not a place to resume from."""
    names = _names(files) if level > Level.QUICK else ()
    model_alone = bool(names) and not any(name.startswith(OPTIMIZER) for name in names)
    if model_alone or (files.has(INDEX) and not files.has(METADATA)):
        yield Finding(Verdict.WEIGHTS_ONLY, "it has a model but no optimizer: the last save of a run")


def resume(point: ResumePoint) -> ResumeBy:
    """The step, in the folder that the configuration names."""
    return ResumeBy(arguments=("--checkpoint.load_step", str(point.step)))


TORCHTITAN = Layout(
    name="torchtitan",
    title="torchtitan",
    entry=re.compile(r"step-(?P<step>[0-9]{1,18})"),
    places=(".", "checkpoint"),
    parts=(Part(state=State.MODEL, files=("*.distcp", "*.safetensors")),),
    recognise=recognise,
    world_size=DCP.world_size,
    check=check,
    states=DCP.states,
    own_latest=OwnLatest.NUMBER,
    resume=resume,
)

"""The concurrent engine's own tree, for scripts that hand it their state: `<dir>/checkpoint-<step>` with a manifest.

A Trainer's checkpoint that the engine wrote has the Trainer's files and is of the layout `hf`. A loop's own has entries
of any name, `optimizer.pt` among them as the Trainer's has; the step and the random numbers, which the engine adds,
tell them apart. Nothing without COMMITTED is whole; `.tmp-…` and `.trash-…` are no candidates by their names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..formats.source import DamagedError
from ..formats.torch_file import read_torch_object
from ..layout import Layout, Part, State, Tracker
from ..manifest import COMMITTED, LATEST, MANIFEST, read_manifest
from ..states import states_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import Files

OF_A_LOOP = ("step.pt", "rng-*.pt")
OF_A_TRAINER = ("trainer_state.json", "training_args.bin", "rng_state*.pth", "optimizer.pt", "*_model_states.pt")


def step(files: Files) -> int | None:
    """Return the manifest's step."""
    try:
        manifest = read_manifest(files)
    except DamagedError:
        return None
    return manifest.step if manifest else None


def world_size(files: Files) -> int | None:
    """Return how many ranks wrote it."""
    try:
        manifest = read_manifest(files)
    except DamagedError:
        return None
    return manifest.world_size if manifest else None


def states(files: Files) -> Iterator[tuple[State, str]]:
    """Return what the state files carry, by their names and by the keys in them."""
    for name in files.names:
        yield from ((state, name) for state, _ in states_in({name.partition(".")[0].partition("-")[0]: None}))
        if name.endswith((".pt", ".pth")):
            yield from ((state, name) for state, _ in states_in(read_torch_object(files.location(name))))


CONCURRENT = Layout(
    name="concurrent",
    title="concurrent checkpoint",
    entry=re.compile(r"checkpoint-(?P<step>[0-9]+)"),
    places=(".", "concurrent_checkpoint"),
    parts=(Part(state=State.MODEL, files=("*",)),),
    marker=COMMITTED,
    recognise=lambda files: files.has(MANIFEST, COMMITTED) and (files.has(*OF_A_LOOP) or not files.has(*OF_A_TRAINER)),
    step=step,
    world_size=world_size,
    states=states,
    trackers=(Tracker(LATEST, lambda point: point.path.name),),
)

"""Which parts of a training's state a checkpoint carries: the table that users know, and its warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .formats.torch_file import read_torch_object
from .layout import REQUIRED_STATES, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .files import Files
    from .layout import Layout

# What scripts call the parts of a checkpoint that is one file (the users' documents, Lightning, DeepSpeed, Megatron).
KEYS: tuple[tuple[State, tuple[str, ...]], ...] = (
    (State.MODEL, ("net", "model", "model_state_dict", "state_dict", "module", "model_state")),
    (State.OPTIMIZER, ("optimizer", "optimizer_state_dict", "optimizer_states", "optim", "opt")),
    (State.STEP, ("epoch", "step", "global_step", "global_steps", "iteration", "iter", "steps")),
    (State.SCHEDULER, ("scheduler", "lr_scheduler", "scheduler_state_dict", "lr_schedulers", "opt_param_scheduler")),
    (State.SCALER, ("scaler", "grad_scaler", "scaler_state_dict", "amp", "loss_scaler")),
    (State.RNG, ("rng", "rng_state", "rng_states", "torch_rng", "random_state", "random_rng_state")),
    (State.SAMPLER, ("sampler", "dataloader", "data_loader", "train_dataloader", "sampler_state", "loops", "data")),
    (State.CUSTOM, ("loss", "callbacks", "metrics", "best", "args", "config", "client_state", "hyper_parameters")),
)


def states_of(files: Files, layout: Layout) -> dict[State, str]:
    """Return which states are there and where: by the layout's parts, and inside a checkpoint that is one file."""
    found: dict[State, str] = {}
    for part in layout.parts:
        present = next((name for glob in part.files for name in files.matching(glob)), None)
        if present is not None:
            found.setdefault(part.state, present)
    if files.is_file:
        found.update(dict(states_in(read_torch_object(files.path))))
    for state, where in layout.states(files) if layout.states else ():
        found.setdefault(state, where)
    return found


def states_in(tree: Any) -> Iterator[tuple[State, str]]:
    """Return the states that a saved dictionary carries, with the key of each."""
    if not isinstance(tree, dict):
        return
    for state, keys in KEYS:
        key = next((key for key in keys if key in tree), None)
        if key is not None:
            yield state, key


def warnings(found: Mapping[State, str]) -> list[str]:
    """Return one sentence for each required state that is missing."""
    return [f"no {state.value}: required to go on with training" for state in REQUIRED_STATES if state not in found]

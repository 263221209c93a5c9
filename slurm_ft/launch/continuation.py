"""Did the training really go on from the chosen step? Judged from its log and from what it saves. Pure.

Frameworks start from scratch without an error in many ways: an option that is not passed on, a tracker that names
nothing, a script that looks elsewhere. Only what happens after the start tells.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

LONGEST_LINE = 2000  # characters of a line that are looked at


@dataclass(frozen=True, slots=True)
class Conclusion:
    """`went_on`: from the chosen step. `alert` is the word for one that did not; `why` is what was seen."""

    went_on: bool
    alert: str
    why: str


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint as a look at the directory shows it. `written` is the newest modification time of its files, in
    nanoseconds of the file system's clock: a removal in progress does not raise it, a save does. 0: not looked at."""

    step: int
    written: int


# What frameworks print about the step that they resume from.
STEP_LINES = (
    re.compile(r"Continuing training from global step (?P<step>\d{1,18})"),  # transformers Trainer
    re.compile(r"Resuming training from checkpoint with .{0,40}global step (?P<step>\d{1,18})"),  # the same since 5.6
    re.compile(r"successfully loaded checkpoint .{0,1000} at iteration (?P<step>\d{1,18})"),  # Megatron-LM, MindSpeed
    re.compile(r"Setting global step to (?P<step>\d{1,18})"),  # VeRL
    re.compile(r"[Rr]esum(?:ed|ing) (?:training )?(?:from|at) (?:global )?(?:step|iteration) (?P<step>\d{1,18})"),
)
# What they print when they start anew instead.
SCRATCH_LINES = (
    re.compile(r"\bTraining from scratch\b"),  # VeRL
    re.compile(r"will not load any checkpoints and will start from random"),  # Megatron-LM
    re.compile(r"Unable to find latest file at "),  # DeepSpeed
    re.compile(r"Cannot resume from checkpoint in current stage"),  # LLaMA-Factory
    re.compile(r"could not find the metadata file "),  # Megatron-LM
)


def from_line(chosen: int, line: str) -> Conclusion | None:
    """What one line of the log says; None if nothing. Our own lines say nothing."""
    text = line[:LONGEST_LINE].strip()
    if text.startswith(("slurm_ft:", "==== slurm_ft")):
        return None
    for pattern in STEP_LINES:
        if match := pattern.search(text):
            return _from_step(chosen, int(match["step"]), f'the log says "{match[0]}"')
    match = next(filter(None, (pattern.search(text) for pattern in SCRATCH_LINES)), None)
    return Conclusion(False, "restarted_from_zero", f'the log says "{match[0]}"') if match else None  # noqa: FBT003


def _from_step(chosen: int, step: int, why: str) -> Conclusion | None:
    if step == chosen:
        return Conclusion(went_on=True, alert="", why=why)
    if step > chosen:  # counted in other units than the checkpoint's name, or about something else
        return None
    return Conclusion(went_on=False, alert="restarted_from_zero" if step == 0 else "resumed_elsewhere", why=why)


def from_checkpoints(chosen: int, before: Mapping[str, Saved], now: Mapping[str, Saved]) -> Conclusion | None:
    """What the checkpoints say that were written since `before`, by path; None while there is no new one.

    The earliest step counts: a training that began at 0 passes the chosen step too, in the end.
    """
    new = {path: saved for path, saved in now.items() if path not in before or 0 < before[path].written < saved.written}
    written = sorted((saved.step, path) for path, saved in new.items() if saved.step != chosen)
    if not written:
        return None
    step, path = written[0]
    why = f"it saved {path.rpartition('/')[2]} (step {step})"
    return Conclusion(went_on=step > chosen, alert="" if step > chosen else "restarted_from_zero", why=why)

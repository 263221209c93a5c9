"""PyTorch Lightning: any `.ckpt`, a file by `torch.save` or, with a sharded strategy, a directory.

`{epoch=E-step=S}[-vN].ckpt`, `last.ckpt` (a copy or a link), `hpc_ckpt_N.ckpt` of its Slurm plugin; the true step is
inside, as `global_step`. A file is written through a temporary one in $TMPDIR and moved; a sharded directory gets
`meta.pt` last (lightning/fabric/plugins/io, strategies/fsdp.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..finding import Finding, Level, Verdict, incomplete
from ..formats.torch_file import read_torch_object
from ..layout import Layout, OwnLatest, Part, ResumeBy, ResumePoint, State
from ..states import states_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..files import Files

ENTRY = re.compile(r"(?!\.)(?:(?:.*[^A-Za-z])?step=(?P<step>[0-9]{1,18})(?:[^0-9].*)?|.*)\.ckpt")
OWN_NAMES = re.compile(r"(?:last|hpc_ckpt_|.*(?:epoch|step)=).*")
META = "meta.pt"
VERSION = "pytorch-lightning_version"


def _tree(files: Files) -> Any:
    return read_torch_object(files.path if files.is_file else files.path / META)


def recognise(files: Files) -> bool:
    """By Lightning's own names, or by the version that it writes into each checkpoint."""
    if OWN_NAMES.fullmatch(files.name) or (not files.is_file and files.has(META)):
        return True
    tree = _tree(files) if files.is_file else None
    return isinstance(tree, dict) and VERSION in tree


def step(files: Files) -> int | None:
    """Return `global_step`."""
    tree = _tree(files)
    found = tree.get("global_step") if isinstance(tree, dict) else None
    return found if isinstance(found, int) else None


def order(files: Files, step: int) -> tuple[float, ...]:
    """By step. A `last.ckpt` that does not tell its own is damaged, and would be the newest: `"last"` takes it."""
    match = ENTRY.fullmatch(files.name)
    told = (match and match["step"]) or isinstance(_tree(files), dict)
    return (float(step) if told else float("inf"),)


def check(files: Files, level: Level) -> Iterator[Finding]:
    """A sharded directory needs its meta.pt, and a resumable checkpoint an optimizer."""
    if not files.is_file and files.has(".metadata", "*.distcp") and not files.has(META):
        yield incomplete(f"{META}: missing: it is written last")
    if level is Level.QUICK:
        return
    tree = _tree(files)
    if isinstance(tree, dict) and VERSION in tree and files.is_file and not tree.get("optimizer_states"):
        yield Finding(Verdict.WEIGHTS_ONLY, "saved with save_weights_only: it has no optimizer")


def states(files: Files) -> Iterator[tuple[State, str]]:
    """Return what meta.pt carries; of a single file everybody can tell."""
    if not files.is_file:
        yield from ((state, META) for state, _ in states_in(_tree(files)))


def resume(point: ResumePoint) -> ResumeBy:
    """`fit(ckpt_path=…)`; with LightningCLI it is an option."""
    return ResumeBy(arguments=("--ckpt_path", str(point.path)))


LIGHTNING = Layout(
    name="lightning",
    title="PyTorch Lightning",
    entry=ENTRY,
    is_file=None,
    places=(".", "checkpoints", "lightning_logs/version_*/checkpoints", "*/version_*/checkpoints"),
    parts=(Part(state=State.MODEL, files=("*.ckpt", ".metadata", "*_model_states.pt")),),
    recognise=recognise,
    step=step,
    order=order,
    check=check,
    states=states,
    own_latest=OwnLatest.MTIME,
    resume=resume,
)

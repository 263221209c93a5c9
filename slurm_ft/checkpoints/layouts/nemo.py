"""NeMo 1 and 2: `<log dir>/checkpoints/<name>--<metric>-step=S-…[-last]`, a `.ckpt` file or a directory.

While one is written or deleted, a file `<checkpoint>-unfinished` lies beside it. NeMo skips those without a word, and
refuses to start if every `-last` is unfinished. With `resume_if_exists` a `-last` wins over `resume_from_checkpoint`,
so a broken one is moved aside; without any `-last` the path counts (nemo/utils/callbacks/nemo_model_checkpoint.py,
nemo/utils/exp_manager.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..finding import Finding, Level, incomplete
from ..layout import Layout, OwnLatest, Part, ResumeBy, ResumePoint, State
from .lightning import LIGHTNING, step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import Files

UNFINISHED = "-unfinished"


def check(files: Files, level: Level) -> Iterator[Finding]:
    """No mark beside it, and Lightning's rules for a file."""
    mark = files.path.with_name(files.name.removesuffix(".ckpt") + UNFINISHED)
    if mark.exists():
        yield incomplete(f"{mark.name} says that it is being written or deleted")
    if files.is_file and LIGHTNING.check is not None:
        yield from LIGHTNING.check(files, level)


def resume(point: ResumePoint) -> ResumeBy:
    """Hydra overrides of its experiment manager."""
    path = str(point.path).replace("=", "\\=")  # Hydra's sign, and every NeMo name has some
    return ResumeBy(
        arguments=(
            "exp_manager.resume_if_exists=True",
            "exp_manager.resume_ignore_no_checkpoint=True",
            f"exp_manager.resume_from_checkpoint={path}",
        )
    )


NEMO = Layout(
    name="nemo",
    title="NeMo",
    entry=re.compile(r"(?!\.).+--.*step=(?P<step>[0-9]{1,18})(?:[^0-9].*)?(?<!-unfinished)"),
    is_file=None,
    places=(".", "checkpoints", "*/checkpoints", "*/*/checkpoints"),
    parts=(Part(state=State.MODEL, files=("*.ckpt", "weights/.metadata", ".metadata", "*.distcp")),),
    step=lambda files: step(files) if files.is_file else None,
    check=check,
    states=LIGHTNING.states,
    own_latest=OwnLatest.MTIME,
    resume=resume,
)

"""Plain PyTorch: one `torch.save` file per checkpoint, `ckpt_{N}.pth` or `ckpt_{N}.pt`.

N counts steps or epochs, whatever the script counts. `ckpt_best_{N}.pth` and the like are copies for evaluation, not
places to resume from.
"""

from __future__ import annotations

import re

from slurm_ft.checkpoints.layout import Layout
from slurm_ft.checkpoints.validate import check_torch_file

_NAME = re.compile(r"ckpt_([0-9]+)\.(?:pth|pt)")


def step_of(name: str) -> int | None:
    """Return N of `ckpt_{N}.pth`; None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


PYTORCH = Layout(name="pytorch", step_of=step_of, check=check_torch_file)

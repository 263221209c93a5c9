"""A training in the hands of `slurm-ft run`: each attempt saves what a test saves for it."""

from __future__ import annotations

import shlex
import zipfile
from typing import TYPE_CHECKING

from steps import OPTED_IN

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_ft.lab import Lab

# As steps.ATTEMPT; the log is that of `slurm-ft run`.
TRAINING = """
restart=${SLURM_RESTART_COUNT:-0}
echo "$restart $SLURMD_NODENAME" >> started.$SLURM_JOB_ID
for _ in $(seq 600); do
    if [ -s end.$SLURM_JOB_ID.$restart ]; then exit "$(cat end.$SLURM_JOB_ID.$restart)"; fi
    sleep 0.1
done
exit 99
"""


def output_directory(lab: Lab) -> Path:
    """A new one, that the lab's user may write to."""
    directory = lab.shared / f"run{len(list(lab.shared.iterdir()))}" / "out"
    directory.mkdir(parents=True)
    for path in (directory.parent, directory):
        path.chmod(0o777)
    return directory


def submit(lab: Lab, out: Path, *options: str, comment: str = "[slurm_ft]", sbatch: tuple[str, ...] = ()) -> int:
    """`options` are those of `slurm-ft run`."""
    words = shlex.join([str(lab.command), "run", f"--output-dir={out}", *options, "--", "bash", "-c", TRAINING])
    environ = {"SLURM_FT_CONFIG": str(lab.layout.config)}
    return lab.sbatch(f"#!/bin/bash\nexec {words}\n", f"--comment={comment}", *OPTED_IN[1:], *sbatch, env=environ)


def save(out: Path, step: int) -> None:
    """A checkpoint that is whole, as plain PyTorch names it."""
    with zipfile.ZipFile(out / f"tmp{step}", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    (out / f"tmp{step}").rename(out / f"ckpt_{step}.pth")

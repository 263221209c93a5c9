"""Run a specimen's writer in the environment that has its framework."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from specimens import WRITERS, Specimen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Below it, one virtual environment for each set of requirements; tools/frameworks.sh makes them.
DIRECTORY = Path(os.environ.get("SLURM_FT_FRAMEWORK_SETS", "/var/tmp/slurm_ft-frameworks"))
LIMIT_SECONDS = 900  # DeepSpeed compiles for minutes the first time


def python_of(specimen: Specimen) -> Path:
    """The interpreter that has the framework; it may be missing."""
    return DIRECTORY / specimen.environment / "bin" / "python"


def command(specimen: Specimen, arguments: Sequence[str]) -> list[str]:
    """The writer's command line."""
    script = [str(WRITERS / specimen.script), *filter(None, [specimen.mode]), *arguments]
    python = str(python_of(specimen))
    if specimen.ranks == 1:
        return [python, *script]
    here = ["--nproc-per-node", str(specimen.ranks), "--master-addr", "127.0.0.1", "--master-port", str(_free_port())]
    return [python, "-m", "torch.distributed.run", *here, *script]


def run(specimen: Specimen, arguments: Sequence[str], cwd: Path, environ: Mapping[str, str] | None = None) -> dict:
    """Run the writer and return what it says: {"first_step": …, "last_step": …}. Raises AssertionError with its log."""
    binaries = python_of(specimen).parent
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CKPT_LAST_STEP")},
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
        "TORCH_EXTENSIONS_DIR": str(DIRECTORY / "torch_extensions" / specimen.environment),
        **(environ or {}),
    }
    done = subprocess.run(
        command(specimen, arguments),
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith('{"first_step"')]
    if done.returncode or not said:
        raise AssertionError(f"{specimen.name}: exit {done.returncode}\n{done.stdout[-4000:]}")
    return json.loads(said[-1])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

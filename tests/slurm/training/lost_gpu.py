"""How the trainings of these tests die: as with a lost GPU, in the middle of a save.

Once the file `fault` beside this one names the node, the newest checkpoint is left torn and the process raises.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

FAULT = Path(__file__).with_name("fault")


def die_if_lost(directory: Path, pattern: str) -> None:
    """Raise if this node has lost its GPU; its first rank tears the newest checkpoint, as a kill in a save would."""
    try:
        lost = FAULT.read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return
    if os.environ["SLURMD_NODENAME"] in lost:
        if int(os.environ.get("LOCAL_RANK", "0")) == 0:
            _tear(max(directory.glob(pattern), key=_numbers))
        raise RuntimeError("CUDA error: unspecified launch failure")


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)]


def _tear(checkpoint: Path) -> None:
    files = [checkpoint] if checkpoint.is_file() else [path for path in checkpoint.rglob("*.*") if path.is_file()]
    largest = max(files, key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)
    print(f"torn: {checkpoint.name}", flush=True)

"""What NVML said when an attempt began: `RUN_DIR/gpu_state/NODE.JOBID.json`, written by the node Prolog's background
process (node/nvml_snapshot_hook.py) and removed by the node Epilog.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict
from pathlib import Path

from slurm_ft.sensors.nvml_reading import Snapshot, parse_reading

SCHEMA = 1
MAX_BYTES = 1 << 20


def path_of(run_dir: Path, node: str, raw_id: int) -> Path:
    """Where the snapshot of a job on a node lies."""
    return run_dir / "gpu_state" / f"{node}.{raw_id}.json"


def write(path: Path, attempt: int, snapshot: Snapshot) -> None:
    """Write it whole or not at all. Raises OSError."""
    lines = [json.dumps({"schema": SCHEMA, "attempt": attempt, "took_s": snapshot.took_s})]
    lines.append(json.dumps({"schema": SCHEMA, "error": snapshot.error, "count": snapshot.count}))
    lines += [json.dumps(asdict(gpu)) for gpu in snapshot.gpus]
    lines += [json.dumps({"end": True})] if snapshot.complete else []
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text("\n".join(lines) + "\n", encoding="utf-8")
        unfinished.replace(path)
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def read(path: Path, attempt: int) -> Snapshot | None:
    """The snapshot of this attempt; None if there is none, or if it is another attempt's. Never raises.

    A requeued job that returns to a node may start without a Prolog; an earlier attempt's snapshot would date its
    faults to this one.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_BYTES)
        head, _, rest = text.partition("\n")
        facts = json.loads(head)
        if (facts["schema"], facts["attempt"]) != (SCHEMA, attempt):
            return None
        snapshot = parse_reading(rest, float(facts["took_s"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return snapshot if snapshot.started else None

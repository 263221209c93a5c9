"""FSDP: sharded and full states through Accelerate's own writers and readers (see fsdp_training.py for the limits)."""

from __future__ import annotations

from pathlib import Path

import launching
import pytest


@pytest.mark.parametrize("kind", ["SHARDED_STATE_DICT", "FULL_STATE_DICT"])
def test_accelerates_writers_save_concurrently(kind: str, tmp_path: Path) -> None:
    script = launching.HERE / "fsdp_training.py"
    launching.run(launching.torchrun(), script, str(tmp_path), kind, env=launching.environment())
    assert (tmp_path / "ours/checkpoint-2/COMMITTED").exists()

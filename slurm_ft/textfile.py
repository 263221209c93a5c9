"""A file of metrics for node_exporter's textfile collector, which reads `*.prom` at any moment."""

from __future__ import annotations

import secrets
from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Replace the file, whole or not at all; everybody may read it. Raises OSError."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.chmod(0o644)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise

"""The folder that CHECKPOINT_VENDOR names goes first on a user's PYTHONPATH: it must shadow nothing and stay light."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

VENDOR = Path(__file__).parents[2] / "slurm_ft" / "vendor"
SOURCES = sorted((VENDOR / "datastates").rglob("*.py"))


def test_the_folder_offers_nothing_but_datastates():
    names = [path.name for path in VENDOR.iterdir() if path.name != "__pycache__"]
    assert names == ["datastates"]


def test_importing_it_loads_neither_torch_nor_slurm_ft():
    program = (
        "import sys, datastates, datastates._engine.settings; print('torch' in sys.modules, 'slurm_ft' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(VENDOR)}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(VENDOR)))
def test_it_never_names_the_package_around_it(source):
    """Imports are relative, so that it works as `datastates` and as `slurm_ft.vendor.datastates`."""
    imports = [
        node for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)
    ]
    names = [node.module for node in imports if node.level == 0 and node.module]
    assert [name for name in names if name.split(".")[0] in ("slurm_ft", "datastates")] == []

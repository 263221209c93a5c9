"""What the installed frameworks write today has the structure of what is frozen: a new version's change shows here."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import freeze
import pytest
from specimens import SPECIMENS
from writing import python_of, run


def structure(output: Path) -> dict[str, object]:
    """Each file with its record names, or the keys of its JSON object. Names with measured numbers are cut there."""
    return {
        plain(path.relative_to(output).as_posix()): content(path)
        for path in sorted(output.rglob("*"))
        if path.is_file() and not any(path.match(pattern) for pattern in freeze.LEFT_OUT)
    }


def plain(name: str) -> str:
    return name.partition("--")[0]


def content(path: Path) -> object:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return sorted(name.partition("/")[2] for name in archive.namelist() if "/data/" not in name)
    if path.suffix == ".json":
        tree = json.loads(path.read_text())
        return sorted(tree) if isinstance(tree, dict) else type(tree).__name__
    return path.suffix


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.name)
def test_the_same_structure_as_frozen(specimen, tmp_path):
    if not python_of(specimen).exists():
        pytest.skip(f"{specimen.environment} is not installed: make test-specimens")
    run(specimen, ["write", freeze.target_of(specimen)], tmp_path)
    assert structure(tmp_path / "output") == structure(specimen.directory / "output")

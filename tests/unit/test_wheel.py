"""An installed package has the vendor folder whole: the checkpoint library in it is a link in the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_a_wheels_vendor_folder_stands_on_its_own(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    vendor = tmp_path / "site/slurm_ft/vendor"
    library = vendor / "datastates/_checkpoints"
    assert library.is_dir()
    assert not list(tmp_path.rglob("*.pyc"))
    program = "import sys; from datastates.llm import decorator as d; print(d.__name__, 'slurm_ft' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(vendor)}
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["datastates.llm.decorator", "False"]

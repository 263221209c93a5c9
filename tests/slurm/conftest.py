"""A real Slurm cluster for the tests of this directory. They fail, and say why, where there cannot be one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_ft.errors import SlurmFtError
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.lab.installation import dotted, find_installation

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this directory needs Slurm: `-m "not slurm"` leaves it out."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.slurm)


def pytest_report_header() -> str:
    """Which Slurm this is: tools/test_matrix.sh reads it."""
    try:
        return f"slurm: {dotted(find_installation().version)}"
    except SlurmFtError as error:
        return f"no Slurm: {error.what}"


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Three nodes with two GPUs each and all of our hooks, shared by the tests of the session."""
    try:
        cluster = Lab(LabSpec()).start()
    except SlurmFtError as error:
        pytest.fail(f"{error} (these tests need root and Slurm: `sudo make test`)", pytrace=False)
    yield cluster
    # The logs explain failures: then the directory stays, for whoever looks.
    cluster.stop(keep=request.session.testsfailed > 0)

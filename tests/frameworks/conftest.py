"""Real trainings: transformers, accelerate, deepspeed and peft on the CPU, in one of the two sets of versions.

`make test-frameworks` makes both sets and runs these tests in each.
"""

from __future__ import annotations

import importlib.util
import sys

import pytest
from launching import HERE, LAUNCH_SECONDS, VENDOR

# The development environment has none of it. `make test-frameworks` fails if nothing is collected.
collect_ignore_glob = [] if importlib.util.find_spec("deepspeed") else ["test_*.py"]

sys.path.insert(0, str(VENDOR))  # as PYTHONPATH=$CHECKPOINT_VENDOR does


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test starts several programs, each with a limit of its own, on a machine that may be busy."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(3 * LAUNCH_SECONDS))

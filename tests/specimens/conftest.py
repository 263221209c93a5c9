"""Frameworks take a while to start, and DeepSpeed compiles the first time."""

import pytest

LIMIT_SECONDS = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each a longer limit than the tests of our own code."""
    for item in items:
        if "specimens" in item.path.parts:
            item.add_marker(pytest.mark.timeout(LIMIT_SECONDS))

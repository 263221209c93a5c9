"""docs/public_reports.md names a test for each report: each is there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "public_reports.md"


def rows():
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines[1:]]


def test_each_report_has_a_test_that_exists():
    defined = {name for path in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text())}
    for report, _, _, tests in rows():
        named = re.findall(r"`(test_\w+)`", tests)
        assert named, report
        assert [name for name in named if name not in defined] == [], report


def test_every_row_has_its_four_columns():
    assert len(rows()) > 30
    assert {len(row) for row in rows()} == {4}

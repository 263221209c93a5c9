"""The pages of reference say what the code says, and the runbook leaves nothing out."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from slurm_ft.alert import Kind
from slurm_ft.classify.catalogue import XIDS
from slurm_ft.classify.facts import FACTS
from slurm_ft.config import SWITCHABLE
from slurm_ft.failover import policy

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import generate_docs  # noqa: E402

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
WORDS = frozenset(re.findall(r"[A-Za-z0-9_]+", RUNBOOK))
RULES = frozenset(re.findall(r'"([a-z_]+)"', Path(policy.__file__).read_text())) & {
    *SWITCHABLE,
    *re.findall(r'(?:JobState\.[A-Z_]+|state|_left_alone\(case\)), "([a-z_]+)"', Path(policy.__file__).read_text()),
}


@pytest.mark.parametrize("page", ["configuration", "causes"])
def test_a_generated_page_is_what_would_be_written_now(page: str) -> None:
    written = (ROOT / "docs" / f"{page}.md").read_text()
    assert written == getattr(generate_docs, page)(), "run: python tools/generate_docs.py"


def test_the_runbook_has_every_cause_that_has_a_name() -> None:
    assert sorted({name for facts in FACTS.values() for name in facts} - WORDS) == []


def test_the_runbook_has_every_xid_by_its_number_or_its_action() -> None:
    known = {code: row for code, row in XIDS.items() if not row[5]}
    by_action = {code for code, row in known.items() if row[3] == "RESTART_APP" and row[1] == "ambiguous"}
    assert [code for code in known if code not in by_action and f"xid{code}" not in WORDS] == []
    assert sorted({row[3] for row in known.values() if row[3]} - WORDS) == []


def test_the_runbook_has_every_rule_and_every_alert() -> None:
    assert len(RULES) > 10
    assert sorted(RULES - WORDS) == []
    assert sorted({kind.value for kind in Kind} - WORDS) == []

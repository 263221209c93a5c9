"""The corpus: whole cases, each with its source. docs/adding_a_case.md says how to add one."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_ft.cli.case_file import CaseText, read_cases
from slurm_ft.cli.classify import compare
from slurm_ft.cli.offline import answer
from slurm_ft.model import Domain, NodeAction

FILES = sorted((Path(__file__).parents[1] / "data" / "cases").glob("*.yaml"))
CASES = [(path.stem, case) for path in FILES for case in read_cases(path.read_text(encoding="utf-8"), path.name)]
MINIMUM = 120


@pytest.mark.parametrize("case", [case for _, case in CASES], ids=[f"{file}-{case.id}" for file, case in CASES])
def test_the_verdict_is_the_expected_one(case: CaseText) -> None:
    assert case.expected is not None
    assert compare(answer(case), case.expected) == []


def test_there_are_enough_and_each_has_its_own_name_and_a_source() -> None:
    assert len(CASES) >= MINIMUM
    assert len({case.id for _, case in CASES}) == len(CASES)
    assert [case.id for _, case in CASES if not case.source or case.unknown_keys] == []


def test_no_node_is_drained_for_a_program_or_for_nothing() -> None:
    """Only where the driver itself asks for a reset (Xid 154) may a case without a hardware verdict drain."""
    drained = [
        case.id
        for _, case in CASES
        if (expected := case.expected) is not None
        and (expected.domain is not Domain.HARDWARE and expected.node_action != "drain")
        and answer(case).verdict.node_action is NodeAction.DRAIN
        and not any(event.code == 154 for event in answer(case).events)
    ]
    assert drained == []


def test_only_hardware_is_retried() -> None:
    wrong = [
        case.id for _, case in CASES if (judged := answer(case)).retry and judged.verdict.domain is not Domain.HARDWARE
    ]
    assert wrong == []

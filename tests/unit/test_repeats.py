from __future__ import annotations

from pathlib import Path

import pytest

from slurm_ft.classify import classify
from slurm_ft.classify.catalogue import XIDS
from slurm_ft.classify.facts import FACTS
from slurm_ft.classify.overrides import Override
from slurm_ft.classify.repeats import REPEATS, PastFault, past_fault
from slurm_ft.model import EventKind, Evidence, ExitStatus, NodeAction
from slurm_ft.node import fault_history
from slurm_ft.sensors.kernel_lines import parse_line

GPU, OTHER = "0000:3b:00", "0000:5e:00"
MMU = f"NVRM: Xid (PCI:{GPU}): 31, pid=7, name=python, MMU Fault: ENGINE GRAPHICS GPC10"
WARP = f"NVRM: Xid (PCI:{GPU}): 13, Graphics SM Warp Exception on (GPC 9, TPC 1, SM 1): Out Of Range Address"


CONTAINED = f"NVRM: Xid (PCI:{GPU}): 94, pid=7, name=python, Contained: SM (0x1). RST: No, D-RST: No"


def fault(raw_id: int, user: int, code: int = 31, pci: str = GPU, place: str = "") -> PastFault:
    return PastFault(raw_id, user, f"xid{code}", pci, place)


@pytest.mark.parametrize(
    ("line", "history", "cause"),
    [
        (MMU, [], "xid31"),
        (MMU, [fault(1, 100), fault(2, 200)], "xid31_repeated"),
        (MMU, [fault(1, 100), fault(1, 100)], "xid31"),  # one job
        (MMU, [fault(1, 100), fault(2, 100), fault(3, 100)], "xid31"),  # one user's bug
        (MMU, [fault(1, 100), fault(2, 200), fault(3, 300, pci=OTHER)], "xid31"),  # it follows the programs
        (MMU, [fault(1, 100, 13), fault(2, 200, 13)], "xid31"),
        (WARP, [fault(1, 100, 13, place="GPC9/TPC1"), fault(2, 200, 13, place="GPC9/TPC1")], "xid13_repeated"),
        (WARP, [fault(1, 100, 13, place="GPC9/TPC1"), fault(2, 200, 13, place="GPC9/TPC2")], "xid13"),
    ],
)
def test_what_repeats_across_jobs_and_users_on_one_gpu(line: str, history: list[PastFault], cause: str) -> None:
    event = parse_line(line, 1)
    assert event is not None
    verdict = classify([Evidence("kernel_log", readable=True, events=(event,))], ExitStatus(1, 0), {}, history)
    assert verdict.cause == cause
    repeated = cause.endswith("_repeated")
    assert (verdict.domain.value, verdict.node_action.value) == (
        ("hardware", "drain") if repeated else ("application", "none")
    )


@pytest.mark.parametrize(
    ("history", "action"),
    [
        ([], "drain_after_repeat"),
        ([fault(1, 100, 94)], "drain_after_repeat"),
        ([fault(1, 100, 94), fault(1, 100, 94)], "drain_after_repeat"),  # one job
        ([fault(1, 100, 94), fault(2, 100, 94)], "drain"),  # no user can cause it, so one user's jobs will do
        ([fault(1, 100, 94), fault(2, 100, 94), fault(3, 1, 94, pci=OTHER)], "drain"),
        ([fault(1, 100, 94, pci=OTHER), fault(2, 100, 94, pci=OTHER)], "drain_after_repeat"),
        ([fault(1, 100), fault(2, 200)], "drain_after_repeat"),  # another code
    ],
)
def test_a_contained_fault_fails_the_job_over_and_drains_after_repeat(history: list[PastFault], action: str) -> None:
    event = parse_line(CONTAINED, 1)
    assert event is not None
    evidence = [Evidence("kernel_log", readable=True, events=(event,))]
    verdict = classify(evidence, ExitStatus(1, 0), {}, history)
    assert (verdict.domain.value, verdict.cause, verdict.node_action.value) == ("hardware", "xid94", action)
    assert ("came back after 2 other jobs" in verdict.reason) is (action == "drain")
    site = {(EventKind.XID, 94): Override(None, drains=False, reason="x")}
    assert classify(evidence, ExitStatus(1, 0), site, history).node_action is NodeAction.NONE


def test_each_row_of_the_table_is_an_event_that_there_is() -> None:
    for kind, what in REPEATS:
        known = XIDS if kind is EventKind.XID else FACTS[kind]
        assert what in known
        convicts = kind is not EventKind.XID and FACTS[kind][str(what)]
        assert not convicts or (convicts.blame.value, convicts.drains) == ("hardware", False)


def test_the_history_survives_on_the_node(tmp_path: Path) -> None:
    event = parse_line(WARP, 1)
    assert event is not None
    first = past_fault(event, 1, 100)
    assert first == fault(1, 100, 13, place="GPC9/TPC1")
    assert fault_history.read(tmp_path, 1000.0, 9) == ()
    fault_history.add(tmp_path, 1000.0, [first, fault(2, 200)])
    fault_history.add(tmp_path, 1001.0, [])
    assert (tmp_path / fault_history.NAME).stat().st_mode & 0o777 == 0o600
    assert fault_history.read(tmp_path, 1002.0, 9) == (first, fault(2, 200))
    assert fault_history.read(tmp_path, 1002.0, 2) == (first,)
    assert fault_history.read(tmp_path, 1002.0 + fault_history.MAX_AGE_S, 9) == ()


def test_what_is_no_line_of_ours_is_skipped(tmp_path: Path) -> None:
    (tmp_path / fault_history.NAME).write_text("x\n\n1 2 3\n1 a b c d e\n")
    assert fault_history.read(tmp_path, 2.0, 9) == ()


def test_the_file_stays_small(tmp_path: Path) -> None:
    fault_history.add(tmp_path, 1.0, [fault(number, 1) for number in range(2 * fault_history.MAX_LINES + 1)])
    assert len(fault_history.read(tmp_path, 2.0, -1)) == fault_history.MAX_LINES

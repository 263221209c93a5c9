from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from slurm_ft.classify import catalogue
from slurm_ft.classify.codes import nvlink5_facts, sxid_facts, xid_facts

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_catalogue", ROOT / "tools" / "generate_catalogue.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_module_is_what_the_generator_writes(generator: ModuleType) -> None:
    facts = yaml.safe_load(generator.SOURCE.read_text())
    assert generator.TARGET.read_text() == generator.render(facts)


def test_the_header_names_script_source_and_date() -> None:
    header = catalogue.__doc__ or ""
    assert "tools/generate_catalogue.py from tools/xid_catalog.yaml" in header
    assert "Read on 20" in header
    assert "595.45.04" in header


def test_sizes() -> None:
    assert set(catalogue.XIDS) == set(range(1, 177))
    assert len(catalogue.SXIDS) == 93
    assert len(catalogue.NVLINK5_RULES) == 94
    assert catalogue.RECOVERY_ACTIONS[2] == "NODE_REBOOT"


@pytest.mark.parametrize(
    ("fault_class", "codes"),
    [
        ("hardware", {46, 48, 54, 62, 64, 74, 79, 94, 95, 110, 119, 120, 136, 140, 143, 156, 157, 158, 171, 172}),
        ("application", {11, 13, 25, 31, 43, 69, 137}),
        ("info", {14, 37, 63, 66, 67, 92, 93, 121, 147, 148, 154}),
        ("ambiguous", {8, 32, 38, 45, 68, 109, 155, 159}),
    ],
)
def test_grouping(fault_class: str, codes: set[int]) -> None:
    assert {code for code in codes if (facts := xid_facts(code)) and facts.fault_class == fault_class} == codes


def test_codes_the_catalogue_does_not_know() -> None:
    assert xid_facts(0) is None
    assert xid_facts(9999) is None
    assert sxid_facts(1) is None


def test_sxids_that_are_fatal() -> None:
    # These come from defaults of the table's own source; reading only its literal values loses them.
    assert all(facts is not None and facts.always_fatal for facts in map(sxid_facts, (10003, 12020, 22003, 23001)))
    link_down = sxid_facts(20034)
    assert link_down is not None
    assert (link_down.potentially_fatal, link_down.always_fatal) == (True, False)


@pytest.mark.parametrize(
    ("code", "unit", "interrupt", "status", "action"),
    [
        (149, "NETIR_LINK_EVT", 0x026001C6, 0, "IGNORE"),  # taken down by software: layout 1
        (149, "NETIR", 0x000FE406, 0, "RESET_GPU"),
        (147, "TREX", 0x0000000E, 1, "IGNORE"),  # layout 2
        (150, "MSE_WATCHDOG", 0, 0, "RESET_GPU"),
        (145, "RLW_REMAP", 0x00000082, 0x40, "RESET_GPU"),
        (145, "RLW_REMAP", 0x00000082, 0x41, None),  # no such status: not guessed
        (145, "OTHER_UNIT", 0x00000082, 0x40, None),
        (146, "RLW_REMAP", 0x00000082, 0x40, None),
    ],
)
def test_nvlink5_registers(code: int, unit: str, interrupt: int, status: int, action: str | None) -> None:
    facts = nvlink5_facts(code, unit, interrupt, status)
    assert (facts and facts.action) == action


def test_the_judges_import_nothing_heavy() -> None:
    probe = "import sys, slurm_ft.classify, slurm_ft.sensors.kernel_log, slurm_ft.sensors.gpu_inventory as _;"
    probe += "print(sorted({'yaml', 'typing', 'logging', 'asyncio', 'subprocess', 'json'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-S", "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

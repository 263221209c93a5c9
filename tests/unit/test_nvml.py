"""The NVML sensor: the real nvidia-ml-py over a stub of NVIDIA's library, read in the real child process."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvml_stub import FIRST, SECOND, UUIDS, NvmlStub

from slurm_ft.classify import classify
from slurm_ft.classify.gpu_state_facts import GPU_STATE_FACTS
from slurm_ft.model import Domain, Evidence, ExitStatus, NodeAction, Verdict
from slurm_ft.sensors import nvml, nvml_child, nvml_events, nvml_snapshot
from slurm_ft.sensors.nvml_reading import GpuReading, Reading, parse_reading

JOB = frozenset({FIRST})
BOTH = frozenset({FIRST, SECOND})
TIMEOUT = 10.0  # the machine that runs the tests may be busy
CLEAN = Evidence("kernel_log", readable=True)


def read(before: Reading | None = None, gpus: frozenset[str] = JOB, **more: bool) -> Evidence:
    return nvml.read_gpu_state(gpus, before, TIMEOUT, **more)


def names(evidence: Evidence) -> list[str]:
    return [event.name for event in evidence.events]


def verdict(evidence: Evidence) -> Verdict:
    return classify((CLEAN, evidence), ExitStatus(1, 0))


@pytest.fixture
def healthy(nvml_stub: NvmlStub) -> Reading:
    """The snapshot of a node in good health."""
    nvml_stub.answers()
    return nvml.take_reading(BOTH, TIMEOUT)


def test_a_healthy_gpu_is_no_evidence(nvml_stub: NvmlStub, healthy: Reading) -> None:
    assert read() == read(healthy) == Evidence("nvml", readable=True)


def test_every_reading_arrives(nvml_stub: NvmlStub) -> None:
    nvml_stub.answers(
        "field_230 0 0 4 1", "field_180 0 0 11", "field_74 0 0 12", "field_75 0 0 13", "field_269 0 0 14",
        "field_270 0 0 15", "field_271 0 0 16", "field_161 0 0 1 3", "field_162 0 0 1 3 0", "field_163 0 0 2 3 17",
        "field_208 0 0 3 3 1", "field_211 0 0 4 3 1", "field_214 0 0 5 3 1", "remapped_rows 0 0 21 22 1 1",
        "retired_pages 0 0 23", "retired_pending 0 0 1", "ecc_volatile 0 0 31", "ecc_aggregate 0 0 32",
        "fabric 0 0 3 0 0x15 2", "pcie_replay 0 0 41", "mig 0 0 1",
        "remap_histogram 0 0 6", "sram 0 0 1",
    )  # fmt: skip
    reading = nvml.take_reading(JOB, TIMEOUT)
    assert (reading.complete, reading.count, reading.error) == (True, 2, None)
    assert reading.gpus == (
        GpuReading(
            FIRST,
            UUIDS[FIRST],
            {
                "mig": 1, "recovery_action": 4, "pcie_fatal": 11, "slow_power_cap_ns": 12, "slow_thermal_ns": 13,
                "slow_sw_thermal_ns": 14, "slow_hw_thermal_ns": 15, "slow_power_brake_ns": 16, "remap_corrected": 21,
                "remap_uncorrected": 22, "remap_pending": 1, "remap_failure": 1, "retired_double_bit": 23,
                "retired_pending": 1, "ecc_volatile": 31, "ecc_aggregate": 32, "fabric_state": 3, "fabric_status": 0,
                "fabric_health": 0x15, "fabric_summary": 2, "pcie_replay": 41, "nvlink_replay": 18,
                "nvlink_recovery": 1, "nvlink_crc": 2, "nvlink_receive_errors": 3, "nvlink_integrity_errors": 4,
                "nvlink_recovery_failed": 5, "remap_banks_used_up": 6, "sram_threshold": 1,
            },
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("handle 0 15", "gpu_lost"),
        ("uuid 0 15", "gpu_lost"),
        ("remapped_rows 0 15", "gpu_lost"),
        ("fields 0 16", "reset_required"),
        ("handle 0 999", "gpu_cannot_be_opened"),
        ("handle 0 28", "gpu_missing"),
        ("handle 0 8", "insufficient_power"),
        ("handle 0 11", "irq_issue"),
    ],
)
def test_a_gpu_on_which_nothing_runs_is_hardware_with_or_without_a_snapshot(
    nvml_stub: NvmlStub, healthy: Reading, line: str, name: str
) -> None:
    nvml_stub.answers(line)
    for before in (None, healthy):
        evidence = read(before)
        assert names(evidence) == [name]
        assert (verdict(evidence).domain, verdict(evidence).node_action) == (Domain.HARDWARE, NodeAction.DRAIN)
        assert evidence.events[0].pci == FIRST
        assert evidence.events[0].source.startswith(f"NVML: GPU {FIRST}")


# What a state or a counter says with a snapshot of good health, with one that has it already, and without any.
LASTING = [
    ("field_230 0 0 1 1", "recovery_action", "hardware", "drain"),
    ("field_230 0 0 9 1", "recovery_action", "hardware", "drain"),
    ("remapped_rows 0 0 0 0 0 1", "row_remap_failure", "hardware", "drain"),
    ("remapped_rows 0 0 0 0 1 0", "row_remap_pending", "unknown", "none"),
    ("sram 0 0 1", "sram_threshold", "hardware", "drain"),
    ("retired_pending 0 0 1", "page_retirement_pending", "unknown", "none"),
    ("fabric 0 0 3 0 0x19 1", "fabric_unhealthy", "hardware", "drain"),
    ("fabric 0 0 3 0 0 2", "fabric_unhealthy", "hardware", "drain"),
    ("fabric 0 0 2 0 0 0", "fabric_not_ready", "unknown", "none"),
    ("fabric 0 0 3 999 0 1", "fabric_not_ready", "unknown", "none"),
    ("ecc_volatile 0 14", "inforom_corrupted", "hardware", "none"),
]


@pytest.mark.parametrize(("line", "name", "domain", "action"), LASTING, ids=[row[0] for row in LASTING])
def test_a_lasting_state_convicts_only_if_it_came_about_in_the_attempt(
    nvml_stub: NvmlStub, healthy: Reading, line: str, name: str, domain: str, action: str
) -> None:
    nvml_stub.answers(line)
    evidence = read(healthy)
    assert names(evidence) == [name]
    assert (verdict(evidence).domain.value, verdict(evidence).node_action.value) == (domain, action)
    for before, suffix in ((nvml.take_reading(JOB, TIMEOUT), "_before"), (None, "_undated")):
        assert names(read(before)) == [name + suffix]
        assert verdict(read(before)).domain is Domain.UNKNOWN


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ecc_volatile 0 0 1", "ecc_uncorrected_now"),
        ("ecc_aggregate 0 0 3", "ecc_uncorrected_now"),
        ("remapped_rows 0 0 0 1 0 0", "row_remapped"),
        ("retired_pages 0 0 2", "page_retired"),
        ("field_180 0 0 1", "pcie_fatal"),
        ("field_214 0 0 1", "nvlink_recovery_failed"),
    ],
)
def test_a_counter_convicts_by_its_growth_alone(nvml_stub: NvmlStub, line: str, name: str) -> None:
    nvml_stub.answers("retired_pages 0 0 0", "field_214 0 0 0")
    before = nvml.take_reading(BOTH, TIMEOUT)
    nvml_stub.answers(line)
    assert names(read(before)) == [name]
    assert verdict(read(before)).domain is Domain.HARDWARE
    assert names(read(None)) == names(read(nvml.take_reading(JOB, TIMEOUT))) == []


def test_a_counter_that_was_set_back_says_nothing(nvml_stub: NvmlStub) -> None:
    nvml_stub.answers("ecc_volatile 0 0 9")
    before = nvml.take_reading(JOB, TIMEOUT)
    nvml_stub.answers("ecc_volatile 0 0 1")
    assert names(read(before)) == []


def test_slow_down_and_recovered_links_are_notes(nvml_stub: NvmlStub, healthy: Reading) -> None:
    nvml_stub.answers("field_270 0 0 90000001000", "field_271 0 0 500", "pcie_replay 0 0 8", "field_163 0 0 9 3 0")
    evidence = read(healthy)
    assert names(evidence) == []
    assert "slowed down by heat for 90 s" in evidence.detail
    assert "3 PCIe replays" in evidence.detail
    assert "2 NVLink errors that were recovered from" in evidence.detail
    assert verdict(evidence).cause == "exit1:0"


def test_what_was_not_answered_at_the_start_is_not_dated(nvml_stub: NvmlStub) -> None:
    nvml_stub.answers("sram 0 999")
    before = nvml.take_reading(JOB, TIMEOUT)
    nvml_stub.answers("sram 0 0 1")
    assert names(read(before)) == ["sram_threshold_undated"]


def test_banks_without_a_spare_row_are_a_note(nvml_stub: NvmlStub, healthy: Reading) -> None:
    nvml_stub.answers("remap_histogram 0 0 2")
    evidence = read(healthy)
    assert names(evidence) == []
    assert "2 memory banks have no spare row left" in evidence.detail


def test_a_field_with_a_return_code_of_its_own_is_not_read(nvml_stub: NvmlStub, healthy: Reading) -> None:
    nvml_stub.answers("field_230 0 3 1 1")
    reading = nvml.take_reading(JOB, TIMEOUT)
    assert "recovery_action" not in reading.gpus[0].values
    assert reading.gpus[0].errors["recovery_action"] == 3
    assert names(read(healthy)) == []


def test_a_recovery_action_that_an_ambiguous_code_explains_convicts_nobody(
    nvml_stub: NvmlStub, healthy: Reading
) -> None:
    nvml_stub.answers("field_230 0 0 1 1")
    evidence = read(healthy, explained=True)
    assert names(evidence) == ["recovery_action_explained"]
    assert (verdict(evidence).domain, verdict(evidence).node_action) == (Domain.UNKNOWN, NodeAction.DRAIN)


def test_gpus_of_other_jobs_are_not_asked(nvml_stub: NvmlStub) -> None:
    nvml_stub.answers("handle 1 15", "hang 1 handle")
    assert names(read()) == []


def test_gpus_are_found_by_address_not_by_number(nvml_stub: NvmlStub) -> None:
    nvml_stub.answers("handle 1 15")
    evidence = read(gpus=frozenset({SECOND}))
    assert [(event.name, event.pci) for event in evidence.events] == [("gpu_lost", SECOND)]


def test_another_gpu_in_the_same_place_has_no_past(nvml_stub: NvmlStub, healthy: Reading) -> None:
    nvml_stub.answers("field_230 0 0 1 1")
    other = replace(healthy, gpus=tuple(replace(gpu, uuid="GPU-other") for gpu in healthy.gpus))
    assert names(read(other)) == ["recovery_action_undated"]


def test_an_address_without_a_gpu_convicts_only_if_there_was_one(nvml_stub: NvmlStub, healthy: Reading) -> None:
    absent = "0000:99:00"
    gpus = frozenset({absent})
    assert names(read(None, gpus)) == ["gpu_not_found_undated"]
    assert names(read(nvml.take_reading(gpus, TIMEOUT), gpus)) == ["gpu_not_found_before"]
    there = replace(healthy, gpus=(GpuReading(absent, "GPU-x", {"mig": 0}),))
    assert names(read(there, gpus)) == ["gpu_missing"]


def test_fewer_gpus_than_at_the_start_need_a_drain_and_convict_nobody(nvml_stub: NvmlStub, healthy: Reading) -> None:
    nvml_stub.answers("count - 0 1")
    evidence = read(healthy)
    assert names(evidence) == ["gpu_count_fell"]
    assert (verdict(evidence).domain, verdict(evidence).node_action) == (Domain.UNKNOWN, NodeAction.DRAIN)


def test_with_mig_on_row_remapping_is_not_supported_and_counters_are_shared(
    nvml_stub: NvmlStub, healthy: Reading
) -> None:
    nvml_stub.answers("mig 0 0 1", "remapped_rows 0 3")
    assert names(read(healthy)) == []
    nvml_stub.answers("mig 0 0 1", "remapped_rows 0 3", "ecc_volatile 0 0 1", "field_230 0 0 1 1")
    evidence = read(healthy)
    assert sorted(names(evidence)) == ["ecc_uncorrected_now_shared", "recovery_action_undated"]
    assert verdict(evidence).domain is Domain.UNKNOWN


def test_an_unknown_error_is_asked_about_again(nvml_stub: NvmlStub) -> None:
    nvml_stub.answers("handle 0 once:999", "ecc_volatile 0 once:999")
    assert read() == Evidence("nvml", readable=True)
    nvml_stub.answers("ecc_volatile 0 999")
    assert names(read()) == ["nvml_unknown_error"]
    assert verdict(read()).domain is Domain.UNKNOWN


@pytest.mark.parametrize(
    ("code", "name"),
    [(9, "driver_not_loaded"), (18, "library_mismatch"), (999, "nvml_unknown_error"), (15, "nvml_unknown_error")],
)
def test_a_library_that_cannot_start_is_neither_gpu_nor_program(nvml_stub: NvmlStub, code: int, name: str) -> None:
    nvml_stub.answers(f"init - {code}")
    evidence = read()
    assert names(evidence) == [name]
    assert (verdict(evidence).domain, verdict(evidence).node_action) == (Domain.UNKNOWN, NodeAction.NONE)


def test_no_permission_is_blindness(nvml_stub: NvmlStub) -> None:
    nvml_stub.answers("handle 0 4")
    assert read() == Evidence("nvml", readable=False, detail=f"no permission to open GPU {FIRST}")
    nvml_stub.answers("init - 4")
    assert not read().readable


def test_an_old_driver_lacks_functions_and_is_no_evidence(
    nvml_stub: NvmlStub, nvml_libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_libraries["old"]))
    before = nvml.take_reading(JOB, TIMEOUT)
    assert before.gpus[0].errors["remapped_rows"] == before.gpus[0].errors["fields"] == 13
    assert before.gpus[0].values["ecc_aggregate"] == 2
    assert read(before) == Evidence("nvml", readable=True)


def test_an_old_binding_lacks_functions_as_well() -> None:
    gpu = nvml_child.Gpu(SimpleNamespace(NVMLError=KeyError), FIRST)
    gpu.put(("mig",), "mig", lambda: gpu.nvml.nvmlDeviceGetMigMode(gpu.handle))
    assert gpu.errors == {"mig": 13}


def test_the_fabric_is_read_in_the_version_that_the_driver_knows(nvml_stub: NvmlStub) -> None:
    nvml_stub.answers("fabric_v3 0 25", "fabric 0 0 3 0 0x19 2")
    values = nvml.take_reading(JOB, TIMEOUT).gpus[0].values
    assert (values["fabric_state"], values["fabric_health"], values["fabric_summary"]) == (3, 0x19, 0)


class TestAbsence:
    """A sensor that a site does not have is no blindness."""

    def test_no_library(self, nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
        assert read() == Evidence("nvml", readable=True, detail="NVML is not installed")
        assert verdict(read()).cause == "exit1:0"
        assert "NVML is not installed" in verdict(read()).reason

    def test_no_binding(self, nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(nvml, "BINDING", "no_such_module_at_all")
        monkeypatch.setattr(nvml, "take_reading", None)
        assert read() == Evidence("nvml", readable=True, detail="nvidia-ml-py is not installed")

    def test_no_gpu(self) -> None:
        assert read(gpus=frozenset()).readable

    def test_no_process_can_be_started(self, nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> None:
        before = set(Path("/proc/self/fd").iterdir())
        monkeypatch.setattr(nvml.sys, "executable", "/nonexistent/python")
        assert not read().readable
        assert set(Path("/proc/self/fd").iterdir()) == before


class TestHang:
    @pytest.mark.parametrize(
        ("line", "pci"), [("hang - init", None), ("hang 1 handle", SECOND), ("hang 0 remapped_rows", FIRST)]
    )
    def test_is_bounded_and_says_where(self, nvml_stub: NvmlStub, line: str, pci: str | None) -> None:
        nvml_stub.answers(line)
        start = time.monotonic()
        evidence = nvml.read_gpu_state(BOTH, None, 1.5)
        assert time.monotonic() - start < 1.5 + 2
        assert [(event.name, event.pci) for event in evidence.events] == [("nvml_timeout", pci)]
        assert verdict(evidence).domain is Domain.UNKNOWN

    def test_after_a_quick_start_is_the_nodes_fault(self, nvml_stub: NvmlStub, healthy: Reading) -> None:
        nvml_stub.answers("hang 0 fields")
        evidence = nvml.read_gpu_state(JOB, replace(healthy, took_s=0.1), 1.0)
        assert names(evidence) == ["nvml_hang"]
        assert (verdict(evidence).domain, verdict(evidence).node_action) == (Domain.HARDWARE, NodeAction.DRAIN)

    @pytest.mark.parametrize("change", [{"took_s": 0.9}, {"complete": False}, {"error": 9}])
    def test_after_a_slow_or_failed_start_is_unknown(
        self, nvml_stub: NvmlStub, healthy: Reading, change: dict[str, object]
    ) -> None:
        nvml_stub.answers("hang 0 fields")
        evidence = nvml.read_gpu_state(JOB, replace(healthy, **{"took_s": 0.1, **change}), 1.0)  # type: ignore[arg-type]
        assert names(evidence) == ["nvml_timeout"]

    def test_what_was_read_before_it_counts(self, nvml_stub: NvmlStub) -> None:
        nvml_stub.answers("handle 0 15", "hang 1 handle")
        assert names(nvml.read_gpu_state(BOTH, None, 1.5)) == ["gpu_lost", "nvml_timeout"]

    def test_leaves_no_process_and_no_descriptor(self, nvml_stub: NvmlStub) -> None:
        nvml_stub.answers("hang - init")
        before = set(Path("/proc/self/fd").iterdir())
        nvml.read_gpu_state(JOB, None, 0.3)
        assert set(Path("/proc/self/fd").iterdir()) == before
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)

    def test_a_slow_answer_is_waited_for(self, nvml_stub: NvmlStub) -> None:
        nvml_stub.answers("slow 0 handle 300")
        assert read() == Evidence("nvml", readable=True)


class TestSnapshot:
    def test_comes_back_as_it_was(self, healthy: Reading, tmp_path: Path) -> None:
        path = nvml_snapshot.path_of(tmp_path, "n1", 12)
        nvml_snapshot.write(path, 3, healthy)
        assert nvml_snapshot.read(path, 3) == healthy
        assert [entry.name for entry in path.parent.iterdir()] == ["n1.12.json"]

    def test_of_another_attempt_is_none(self, healthy: Reading, tmp_path: Path) -> None:
        path = tmp_path / "snapshot"
        nvml_snapshot.write(path, 0, healthy)
        assert nvml_snapshot.read(path, 1) is None

    @pytest.mark.parametrize(
        "content",
        [b"", b"\0", b"[]\n{}", b"{}", b'{"schema": 1}\n', b'{"schema": 1, "attempt": 0, "took_s": "x"}\n', b"[" * 9999,
         b'{"schema": 1, "attempt": 0, "took_s": 1}\n', b'{"schema": 1, "attempt": 0, "took_s": null}\n{}', b"\xff"],
    )  # fmt: skip
    def test_damaged_or_missing_is_none(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "snapshot"
        assert nvml_snapshot.read(path, 0) is None
        path.write_bytes(content)
        assert nvml_snapshot.read(path, 0) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
HEAD = '{"schema": 1, "error": null, "count": 1}\n'


@given(st.text(max_size=200) | st.lists(JSON.map(json.dumps), max_size=4).map("\n".join))
def test_no_answer_breaks_the_parser(text: str) -> None:
    for answer in (text, HEAD + text):
        reading = parse_reading(answer)
        nvml.evidence_of(reading, JOB, reading, 1.0)


NUMBERS = st.dictionaries(
    st.sampled_from(
        ("mig", "recovery_action", "ecc_volatile", "remap_pending", "fabric_state", "fabric_health", "pcie_fatal")
    ),
    st.integers(-1, 2**64),
)
CODES = st.dictionaries(st.sampled_from(("handle", "fields", "uuid")), st.integers(0, 30) | st.just(999))
GPUS = st.builds(GpuReading, st.just(FIRST), st.just("GPU-x"), NUMBERS, CODES)


@given(GPUS, GPUS, st.booleans())
def test_every_event_has_a_row_and_every_value_is_taken(now: GpuReading, then: GpuReading, explained: bool) -> None:
    for before in (None, Reading((then,))):
        judged = nvml_events.compare(Reading((now,)), before, explained=explained)
        assert all(event.name in GPU_STATE_FACTS for event in judged.events)
        assert all(event.source.isprintable() for event in judged.events)


def test_an_answer_without_end_is_not_complete() -> None:
    evidence = nvml.evidence_of(parse_reading(HEAD, 0.1), JOB, None, 1.0)
    assert evidence == Evidence("nvml", readable=False, detail="NVML's reader ended before its time")
    evidence = nvml.evidence_of(parse_reading("", 0.1), JOB, None, 1.0)
    assert evidence == Evidence("nvml", readable=False, detail="NVML's reader gave no answer")

"""DCGM: a fake `dcgmi` and a real HTTP endpoint that answer in DCGM's shapes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_ft.classify import classify
from slurm_ft.classify.gpu_state_facts import GPU_STATE_FACTS
from slurm_ft.model import Domain, Event, EventKind, Evidence, ExitStatus, NodeAction, Verdict
from slurm_ft.sensors import dcgm, dcgm_exporter
from slurm_ft.sensors.dcgm import Incident, parse_discovery, parse_health
from slurm_ft.sensors.dcgm_diag import DiagFault, parse_diag
from slurm_ft.sensors.dcgm_exporter import parse_metrics

FIRST, SECOND = "0000:07:00", "0000:0f:00"
JOB = frozenset({FIRST})
UUID = "GPU-265c9814-6156-355b-e589-ff2064894f16"
TIMEOUT = 10.0

DISCOVERY = """\
2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA A100-SXM4-40GB                                          |
|        | PCI Bus ID: 00000000:07:00.0                                         |
|        | Device UUID: GPU-265c9814-6156-355b-e589-ff2064894f16                |
+--------+----------------------------------------------------------------------+
| 1      | Name: NVIDIA A100-SXM4-40GB                                          |
|        | PCI Bus ID: 00000000:0F:00.0                                         |
|        | Device UUID: GPU-5e5e5e5e-0000-0000-0000-000000000000                |
+--------+----------------------------------------------------------------------+
0 NvSwitches found.
"""
TEXT = "GPU 0 has uncorrectable memory errors: a DBE was detected in GPU 0. Drain the GPU and reset it, or reboot."


def health(level: str = "Failure", system: str = "Memory system", gpu: str = "0", text: str = TEXT) -> str:
    pieces = [text[start : start + dcgm.WRAP] for start in range(0, len(text), dcgm.WRAP)]
    errors = {"Errors": {"children": {system: {"value": level, "overflow": pieces}}}}
    children = {gpu: {"value": level, "children": errors}, "1": {"value": "Healthy"}}
    body = {"Overall Health": {"value": level}, "GPU": {"children": children}}
    return json.dumps({"header": ["Health Monitor Report"], "body": body})


HEALTHY = json.dumps({"header": ["Health Monitor Report"], "body": {"Overall Health": {"value": "Healthy"}}})
NO_WATCHES = "Error: Health watches not enabled. Please enable watches.\n"


@pytest.fixture
def dcgmi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Evidence]:
    """Answers `dcgmi discovery -l` and `dcgmi health -c -j`, and asks the sensor."""

    def ask(answer: str, discovery: str = DISCOVERY, then: str = ":", timeout_s: float = TIMEOUT) -> Evidence:
        (tmp_path / "discovery").write_text(discovery)
        (tmp_path / "health").write_text(answer)
        program = tmp_path / "dcgmi"
        program.write_text(
            f'#!/bin/sh\ncase "$*" in "discovery -l" | "health -c -j") ;; *) exit 9 ;; esac\n'
            f'cat "{tmp_path}/$1"\n{then}\n'
        )
        program.chmod(0o755)
        monkeypatch.setattr(dcgm, "DCGMI", str(program))
        return dcgm.read_dcgm("dcgmi", JOB, 3600.0, timeout_s)

    return ask


def verdict(evidence: Evidence) -> Verdict:
    return classify((Evidence("kernel_log", readable=True), evidence), ExitStatus(1, 0))


class TestHealth:
    def test_healthy_is_no_evidence(self, dcgmi: Callable[..., Evidence]) -> None:
        assert dcgmi(HEALTHY) == Evidence("dcgm", readable=True)

    def test_a_failure_drains_and_convicts_nobody_since_it_has_no_date(self, dcgmi: Callable[..., Evidence]) -> None:
        evidence = dcgmi(health())
        (event,) = evidence.events
        assert event == Event(
            EventKind.GPU_STATE, None, FIRST, f"DCGM: GPU {FIRST}: Memory system: Failure: {TEXT}", name="dcgm_failure"
        )
        assert (verdict(evidence).domain, verdict(evidence).node_action) == (Domain.UNKNOWN, NodeAction.DRAIN)

    def test_a_warning_asks_for_nothing(self, dcgmi: Callable[..., Evidence]) -> None:
        evidence = dcgmi(health("Warning"))
        assert [event.name for event in evidence.events] == ["dcgm_warning"]
        assert (verdict(evidence).domain, verdict(evidence).node_action) == (Domain.UNKNOWN, NodeAction.NONE)

    @pytest.mark.parametrize("system", ["Thermal system", "Power system", "Driver-related issues", "Thermal"])
    def test_heat_power_and_settings_are_notes(self, dcgmi: Callable[..., Evidence], system: str) -> None:
        evidence = dcgmi(health(system=system))
        assert evidence.events == ()
        assert system in evidence.detail

    def test_of_another_jobs_gpu_is_not_ours(self, dcgmi: Callable[..., Evidence]) -> None:
        swapped = DISCOVERY.replace(":07:", ":xx:").replace(":0F:", ":07:").replace(":xx:", ":0F:")
        assert dcgmi(health(), swapped).events == ()

    @pytest.mark.parametrize(
        ("answer", "says"),
        [
            (NO_WATCHES, "Health watches not enabled. Please enable watches.); are its watches set (-s a)?"),
            ("", "no text"),
            ("{}", "unknown shape"),
            ("[1]", "unknown shape"),
            ("[" * 99999, "gave no JSON"),
        ],
    )
    def test_what_is_no_report_is_blindness(self, dcgmi: Callable[..., Evidence], answer: str, says: str) -> None:
        evidence = dcgmi(answer)
        assert not evidence.readable
        assert says in evidence.detail

    def test_a_gpu_that_is_not_listed_is_blindness(self, dcgmi: Callable[..., Evidence]) -> None:
        assert not dcgmi(HEALTHY, "Error: cannot connect to the host engine\n").readable

    def test_a_hang_is_bounded(self, dcgmi: Callable[..., Evidence]) -> None:
        start = time.monotonic()
        evidence = dcgmi(HEALTHY, then="exec sleep 60", timeout_s=0.5)
        assert time.monotonic() - start < 5
        assert evidence == Evidence("dcgm", readable=False, detail="dcgmi discovery gave no whole answer in time")

    def test_an_endless_answer_is_bounded(self, dcgmi: Callable[..., Evidence]) -> None:
        evidence = dcgmi(HEALTHY, then="exec yes")
        assert not evidence.readable

    def test_a_missing_program_is_blindness(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dcgm, "DCGMI", "/nonexistent/dcgmi")
        assert not dcgm.read_dcgm("dcgmi", JOB, None, 1.0).readable

    def test_wrapped_text_is_joined(self) -> None:
        (incident,) = parse_health(health()).incidents
        assert incident == Incident(0, "Memory system", "Failure", TEXT)

    def test_discovery(self) -> None:
        assert parse_discovery(DISCOVERY) == {0: FIRST, 1: SECOND}


class Exporter(ThreadingHTTPServer):
    """A dcgm-exporter on the loopback interface."""

    daemon_threads = True
    block_on_close = False
    body = b""
    status = 200
    headers: tuple[tuple[str, str], ...] = ()
    drip_s = 0.0
    asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/metrics"

    def read(self, timeout_s: float = TIMEOUT, began_s_ago: float | None = 3600.0) -> Evidence:
        return dcgm_exporter.read_exporter(self.url, JOB, {UUID: FIRST}, began_s_ago, timeout_s)


class Handler(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(self.server.status)
        for name, value in self.server.headers:
            self.send_header(name, value)
        self.end_headers()
        try:
            if not self.server.drip_s:
                self.wfile.write(self.server.body)
                return
            for byte in self.server.body:
                self.wfile.write(bytes((byte,)))
                time.sleep(self.server.drip_s)
        except OSError:
            return

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with Exporter(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def metric(name: str, value: object, **labels: str) -> str:
    where = {"gpu": "0", "UUID": UUID, "device": "nvidia0", "modelName": "NVIDIA A30", "Hostname": "n1", **labels}
    return f"{name}{{" + ",".join(f'{key}="{text}"' for key, text in where.items()) + f"}} {value}\n"


def counted(xid: int, window_ms: int = 300000, value: int = 1, **labels: str) -> str:
    return metric("DCGM_EXP_XID_ERRORS_COUNT", value, window_size_in_ms=str(window_ms), xid=str(xid), **labels)


HELP = "# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.\n# TYPE DCGM_FI_DEV_XID_ERRORS gauge\n"
CLEAN = HELP + metric("DCGM_FI_DEV_XID_ERRORS", 0) + metric("DCGM_FI_DEV_GPU_TEMP", 40)


class TestExporter:
    def ask(self, exporter: Exporter, *lines: str, began_s_ago: float | None = 3600.0) -> Evidence:
        exporter.body = "".join((CLEAN, *lines)).encode()
        return exporter.read(began_s_ago=began_s_ago)

    def test_a_clean_answer_is_no_evidence(self, exporter: Exporter) -> None:
        assert self.ask(exporter) == Evidence("dcgm", readable=True)

    def test_the_last_xid_ever_is_a_note(self, exporter: Exporter) -> None:
        evidence = self.ask(exporter, metric("DCGM_FI_DEV_XID_ERRORS", 79))
        assert evidence.events == ()
        assert "the last Xid that DCGM saw, whenever that was, is 79" in evidence.detail

    def test_an_xid_counted_within_the_attempt_is_one_of_the_attempt(self, exporter: Exporter) -> None:
        evidence = self.ask(exporter, counted(79), counted(0, value=0))
        assert [(event.kind, event.code, event.pci) for event in evidence.events] == [(EventKind.XID, 79, FIRST)]
        assert verdict(evidence).cause == "xid79"

    @pytest.mark.parametrize("began_s_ago", [299.0, None])
    def test_a_window_that_begins_before_the_attempt_proves_nothing(
        self, exporter: Exporter, began_s_ago: float | None
    ) -> None:
        evidence = self.ask(exporter, counted(79), began_s_ago=began_s_ago)
        assert evidence.events == ()
        assert "a window that begins before the attempt" in evidence.detail

    @pytest.mark.parametrize("name", ["DCGM_FI_DEV_GPU_RECOVERY_ACTION", "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION"])
    def test_a_recovery_action_drains(self, exporter: Exporter, name: str) -> None:
        evidence = self.ask(exporter, metric(name, 2))
        assert [event.name for event in evidence.events] == ["recovery_action_undated"]
        assert "NODE_REBOOT" in evidence.events[0].source
        assert verdict(evidence).node_action is NodeAction.DRAIN

    @pytest.mark.parametrize("value", ["9223372036854775794", "9.223372036854776e+18", "NaN", "-1", "1e999", "e", "0"])
    def test_a_blank_value_is_none(self, exporter: Exporter, value: str) -> None:
        assert self.ask(exporter, metric("DCGM_FI_DEV_ROW_REMAP_FAILURE", value)).events == ()

    def test_slices_of_one_gpu_count_once(self, exporter: Exporter) -> None:
        line = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
        evidence = self.ask(exporter, metric(line, 1, GPU_I_ID="3"), metric(line, 1, GPU_I_ID="4"))
        assert [event.name for event in evidence.events] == ["row_remap_failure_undated"]

    def test_gpus_are_known_by_address_or_uuid_and_never_by_number(self, exporter: Exporter) -> None:
        other = {"UUID": "GPU-other", "pci_bus_id": "00000000:0F:00.0"}
        assert self.ask(exporter, counted(79, **other)).events == ()
        newer = {"UUID": "GPU-unheard-of", "pci_bus_id": "00000000:07:00.0"}
        assert len(self.ask(exporter, counted(79, **newer)).events) == 1

    @pytest.mark.parametrize("body", ["", "# nothing\n", metric("DCGM_FI_DEV_XID_ERRORS", 0, UUID="GPU-other")])
    def test_an_answer_that_says_nothing_of_the_gpus_is_blindness(self, exporter: Exporter, body: str) -> None:
        exporter.body = body.encode()
        assert not exporter.read().readable

    def test_an_error_is_blindness(self, exporter: Exporter) -> None:
        exporter.status, exporter.body = 500, CLEAN.encode()
        assert "500" in exporter.read().detail
        assert not exporter.read().readable

    def test_a_redirect_is_not_followed(self, exporter: Exporter) -> None:
        exporter.status, exporter.headers = 302, (("Location", exporter.url),)
        assert not exporter.read().readable
        assert exporter.asked == 1

    def test_a_proxy_is_not_asked(self, exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1/")
        assert self.ask(exporter).readable

    def test_a_huge_answer_is_refused(self, exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dcgm_exporter, "MAX_BYTES", 1000)
        assert "more than 1000 bytes" in self.ask(exporter, "#" * 2000).detail

    def test_an_answer_byte_by_byte_is_bounded(self, exporter: Exporter) -> None:
        exporter.body, exporter.drip_s = b"#" * 60, 0.1
        start = time.monotonic()
        assert "no answer within 0.5 s" in exporter.read(0.5).detail
        assert time.monotonic() - start < 3

    @pytest.mark.parametrize("url", ["http://127.0.0.1:1/metrics", "http://[::1/metrics", "http://127.0.0.1:x/metrics"])
    def test_no_server_is_blindness(self, url: str) -> None:
        assert not dcgm.read_dcgm(url, JOB, None, TIMEOUT).readable


DIAG_3 = {
    "DCGM GPU Diagnostic": {
        "test_categories": [
            {
                "category": "Deployment",
                "tests": [
                    {"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "PASS"}]},
                    {
                        "name": "Page Retirement/Row Remap",
                        "results": [
                            {
                                "gpu_ids": "1",
                                "status": "FAIL",
                                "warnings": [
                                    {
                                        "warning": "GPU 1 had uncorrectable memory errors and row remapping failed.",
                                        "error_id": 95,
                                        "error_category": 1,
                                        "error_severity": 2,
                                    }
                                ],
                            },
                            {"gpu_ids": "0", "status": "SKIP"},
                        ],
                    },
                ],
            }
        ]
    },
    "Driver Version Detected": "535.54.03",
}
DIAG_4 = {
    "DCGM Diagnostic": {
        "test_categories": [
            {
                "category": "Deployment",
                "tests": [
                    {
                        "name": "software",
                        "results": [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Fail"}],
                        "test_summary": {
                            "status": "Fail",
                            "warnings": [
                                {
                                    "warning": "Persistence mode for GPU 0 is disabled.",
                                    "error_id": 29,
                                    "error_category": 8,
                                    "error_severity": 5,
                                }
                            ],
                        },
                    },
                    {
                        "name": "memory",
                        "results": [
                            {
                                "entity_group": "GPU",
                                "entity_id": 0,
                                "status": "Fail",
                                "warnings": [{"warning": "reset", "error_id": 80, "error_severity": 6}],
                            },
                            {"entity_group": "CPU", "entity_id": 0, "status": "Pass"},
                        ],
                        "test_summary": {"status": "Fail", "warnings": [{"warning": "reset", "error_severity": 6}]},
                    },
                ],
            }
        ]
    },
    "entity_groups": [],
    "metadata": {"version": "4.2.3"},
}


class TestDiag:
    def test_the_shape_of_3(self) -> None:
        diagnosis = parse_diag(json.dumps(DIAG_3))
        text = "GPU 1 had uncorrectable memory errors and row remapping failed."
        assert diagnosis.faults == (DiagFault("Page Retirement/Row Remap", 1, 2, 95, text),)
        assert diagnosis.faults[0].is_hardware
        assert (diagnosis.passed, diagnosis.problem) == (1, "")

    def test_the_shape_of_4_where_persistence_mode_is_a_setting(self) -> None:
        diagnosis = parse_diag("Successfully ran diagnostic for group.\n" + json.dumps(DIAG_4))
        assert [(fault.test, fault.gpu, fault.is_hardware) for fault in diagnosis.faults] == [
            ("software", None, False),
            ("memory", 0, True),
        ]
        assert diagnosis.passed == 1

    @pytest.mark.parametrize(
        ("warning", "hardware"),
        [
            ({"error_id": 95}, True),
            ({"error_id": "25"}, True),
            ({"error_id": 101}, False),
            ({"error_id": 95, "error_severity": 3}, False),
            ({"error_severity": 1}, False),
            ("an older text", False),
            ({}, False),
        ],
    )
    def test_only_isolate_and_reset_are_hardware(self, warning: object, hardware: bool) -> None:
        result = {"gpu_id": "0", "status": "Fail", "warnings": [warning]}
        report = {"DCGM GPU Diagnostic": {"test_categories": [{"tests": [{"name": "x", "results": [result]}]}]}}
        (fault,) = parse_diag(json.dumps(report)).faults
        assert (fault.is_hardware, fault.gpu) == (hardware, 0)

    @pytest.mark.parametrize(
        "text", ["", "Error: unable to establish a connection", "{}", "[]", '{"DCGM Diagnostic": 1}']
    )
    def test_no_report_says_why(self, text: str) -> None:
        assert parse_diag(text).problem


NAMES = st.sampled_from(
    ("body", "GPU", "children", "Errors", "value", "overflow", "Overall Health", "0", "Failure", "DCGM Diagnostic",
     "test_categories", "tests", "results", "status", "fail", "warnings", "error_id", "gpu_ids", "test_summary", "name")
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(JSON.map(json.dumps) | st.text(max_size=99), st.text(max_size=99))
def test_no_answer_of_dcgmi_breaks_the_parsers(answer: str, discovery: str) -> None:
    dcgm.evidence_of(parse_health(answer), parse_discovery(discovery), JOB)
    parse_diag(answer)


@given(
    st.lists(
        st.builds(
            "{}{{{}}} {}\n".format,
            st.sampled_from(dcgm_exporter._WANTED),
            st.text(max_size=40) | st.builds('UUID="{}",xid="{}"'.format, st.just(UUID), st.text(max_size=6)),
            st.floats().map(str) | st.integers().map(str),
        )
        | st.text(max_size=60),
        max_size=5,
    ).map("".join)
)
def test_no_answer_of_an_exporter_breaks_the_parser(text: str) -> None:
    evidence = dcgm_exporter.evidence_of(parse_metrics(text), JOB, {UUID: FIRST}, 1e9)
    assert all(event.code or event.name in GPU_STATE_FACTS for event in evidence.events)
    assert all(event.source.isprintable() for event in evidence.events)

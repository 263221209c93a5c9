"""What `dcgmi diag -r 1 -j` says of an idle node: for an admin's explicit check (`slurm-ft check-node`), never for an
epilog, since the diagnostic occupies the GPUs.

NVIDIA documents no schema. Read here: DCGM 3.x (root `DCGM GPU Diagnostic`, `gpu_ids` or `gpu_id`, PASS/FAIL) and 4.x
(root `DCGM Diagnostic`, `entity_group` and `entity_id`, Pass/Fail, `test_summary`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from slurm_ft.sensors import dcgm
from slurm_ft.sensors.bounded_process import run_bounded
from slurm_ft.sensors.kernel_lines import printable

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterator

ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
ISOLATE, UNKNOWN, RESET = 2, 3, 6  # dcgmErrorSeverity_t; 3 means that DCGM does not know
HARMLESS = (0, 1, 5)  # nothing, only to be watched, a setting
# Severities by error id, for releases that print no severity (DCGM 4.6 sources).
_ISOLATE_IDS = frozenset(
    (3, 4, 7, 8, 13, 15, 52, 57, 58, 70, 71, 79, 81, 86, 87, 95, 109, 111, *range(113, 117), *range(118, 123), 126)
)
_RESET_IDS = frozenset((6, 25, 80, 83, 84, 85, 125, 127, 128, 129))


@dataclass(frozen=True, slots=True)
class DiagFault:
    """One warning of a failed test. `gpu` is DCGM's own number, None if the warning is the whole test's."""

    test: str
    gpu: int | None
    severity: int
    error_id: int | None
    text: str

    @property
    def is_hardware(self) -> bool:
        """Whether DCGM says to isolate or reset the GPU. Persistence mode that is off fails a test too: a setting."""
        return self.severity in (ISOLATE, RESET)

    @property
    def is_harmless(self) -> bool:
        """Whether DCGM itself asks for nothing, or for another setting."""
        return self.severity in HARMLESS


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the diagnostic found; `problem` is why it says nothing. `passed` counts results."""

    faults: tuple[DiagFault, ...] = ()
    passed: int = 0
    problem: str = ""


def run_diag(timeout_s: float) -> Diagnosis:
    """Run the quick diagnosis, for at most `timeout_s` seconds. Never raises."""
    try:
        output = run_bounded([dcgm.DCGMI, "diag", "-r", "1", "-j"], timeout_s, errors_too=True)
    except OSError as error:
        return Diagnosis(problem=f"{dcgm.DCGMI}: {error.strerror or error}")
    if not output.ended:
        return Diagnosis(problem=f"dcgmi diag gave no whole answer within {timeout_s:g} s")
    return parse_diag(output.text)


def addresses(timeout_s: float) -> dict[int, str]:
    """DCGM's number of a GPU -> canonical address; empty if it does not say."""
    try:
        return dcgm.parse_discovery(run_bounded([dcgm.DCGMI, "discovery", "-l"], timeout_s).text)
    except OSError:
        return {}


def parse_diag(text: str) -> Diagnosis:
    """Read the JSON of 3.x or 4.x. Never raises."""
    try:
        root = json.loads(text[max(text.find("{"), 0) :])  # dcgmi may print a line of prose before it
    except (ValueError, RecursionError):
        words = printable(" ".join(text.split()))[:120]
        return Diagnosis(problem=f"dcgmi diag gave no JSON ({words or 'no text'})")
    body = next((root[name] for name in ROOTS if isinstance(root, dict) and name in root), None)
    categories = _list(body, "test_categories")
    if not categories:
        return Diagnosis(problem="dcgmi diag gave JSON without test_categories")
    tests = [test for category in categories for test in _list(category, "tests")]
    results = [(_text(test, "name"), result) for test in tests for result in _results(test)]
    faults = [fault for name, result in results for fault in _faults(name, result)]
    passed = sum(_text(result, "status").lower() == "pass" for _, result in results)
    return Diagnosis(tuple(dict.fromkeys(faults)), passed)


def _results(test: object) -> Iterator[object]:
    """A test's results for each GPU. 4.x may have the warnings in the summary only, which stands in for them then."""
    results, summary = _list(test, "results"), _get(test, "test_summary")
    spoken = any(_get(result, "warnings") for result in results)
    if spoken or not _get(summary, "warnings"):
        yield from results
    else:
        yield from (result for result in results if _text(result, "status").lower() != "fail")
        yield summary


def _faults(test: str, result: object) -> Iterator[DiagFault]:
    if _text(result, "status").lower() != "fail":
        return
    warnings = _list(result, "warnings") or [_get(result, "warnings") or {}]
    for warning in warnings:
        words = warning if isinstance(warning, str) else _text(warning, "warning")
        error_id = _number(_get(warning, "error_id"))
        severity = _number(_get(warning, "error_severity"))
        severity = _severity_of(error_id) if severity is None else severity
        for gpu in _gpus(warning) or _gpus(result) or (None,):
            yield DiagFault(printable(test), gpu, severity, error_id, printable(" ".join(words.split())))


def _severity_of(error_id: int | None) -> int:
    if error_id in _ISOLATE_IDS:
        return ISOLATE
    return RESET if error_id in _RESET_IDS else UNKNOWN


def _gpus(result: object) -> tuple[int, ...]:
    """`gpu_ids: "0,1"` or `gpu_id: "0"` (3.x), `entity_group: "GPU"` and `entity_id: 0` (4.x)."""
    text = _get(result, "gpu_ids") or _get(result, "gpu_id")
    if text is None and str(_get(result, "entity_group")) == "GPU":
        text = _get(result, "entity_id")
    parts = [] if text is None else str(text).split(",")
    return tuple(int(part) for part in map(str.strip, parts) if part.isascii() and part.isdigit() and len(part) <= 4)


def _get(node: object, name: str) -> object:
    return node.get(name) if isinstance(node, dict) else None


def _list(node: object, name: str) -> list[object]:
    value = _get(node, name)
    return value if isinstance(value, list) else []


def _text(node: object, name: str) -> str:
    value = _get(node, name)
    return value if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 9:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None

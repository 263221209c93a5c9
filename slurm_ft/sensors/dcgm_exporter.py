"""What a dcgm-exporter on the node says of the job's GPUs: its text metrics -> events.

`DCGM_FI_DEV_XID_ERRORS` keeps the last Xid there ever was, so it is a note and no event. `DCGM_EXP_XID_ERRORS_COUNT`
counts within a window that ends now: if the attempt began before the window, the Xid is the attempt's. States have no
date. All else the exporter says (temperatures, clocks) is no evidence.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass

from slurm_ft.classify.catalogue import RECOVERY_ACTIONS
from slurm_ft.model import Event, EventKind, Evidence
from slurm_ft.sensors.kernel_lines import printable
from slurm_ft.sensors.nvml_events import UNDATED
from slurm_ft.sensors.pci_address import canonical_pci

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SENSOR = "dcgm"
MAX_BYTES = 8 << 20  # an answer for 16 GPUs with every field has some 0.5 MiB
MAX_SAMPLES = 4096  # of the metrics below
BLANK = float(0x7FFFFFFFFFFFFFF0)  # DCGM's "no value", and whatever is above it

XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
LAST_XID = "DCGM_FI_DEV_XID_ERRORS"
STATES = {
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("row_remap_failure", "a memory row could not be remapped"),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": ("row_remap_pending", "a memory row waits for a reset to be remapped"),
    # Field 1523; releases spell its metric differently.
    "DCGM_FI_DEV_GPU_RECOVERY_ACTION": ("recovery_action", "recovery action"),
    "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": ("recovery_action", "recovery action"),
}
_WANTED = (XID_COUNT, LAST_XID, *STATES)
_SAMPLE = re.compile(r"([A-Z_]{5,60})\{([^\n]{0,4096})\} ([0-9.eE+-]{1,32})(?: [0-9]{1,20})?\s*\Z")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]{0,63})="((?:[^"\\\n]|\\.)*)"(?:,|\Z)')


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the answer."""

    metric: str
    labels: Mapping[str, str]
    value: float


def read_exporter(
    url: str, gpus: frozenset[str], uuids: Mapping[str, str], began_s_ago: float | None, timeout_s: float
) -> Evidence:
    """Ask the exporter, for at most `timeout_s` seconds. Never raises. `uuids`: GPU UUID -> canonical address."""
    text, problem = fetch(url, timeout_s)
    if problem:
        return Evidence(SENSOR, readable=False, detail=f"{url}: {problem}")
    return evidence_of(parse_metrics(text), gpus, uuids, began_s_ago)


def fetch(url: str, timeout_s: float) -> tuple[str, str]:
    """The answer, or an empty one and why. A server may send its answer byte by byte, and each read has a time limit
    of its own: so a thread reads, and is left alone when the time is up."""
    answers: list[tuple[str, str]] = []
    thread = threading.Thread(target=lambda: answers.append(_get(url, timeout_s)), daemon=True)
    thread.start()
    thread.join(timeout_s)
    return answers[0] if answers else ("", f"no answer within {timeout_s:g} s")


def _get(url: str, timeout_s: float) -> tuple[str, str]:
    import http.client  # noqa: PLC0415 - urllib takes longer to import than an exporter to answer
    import urllib.request  # noqa: PLC0415

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            """An exporter has no reason to send us elsewhere."""

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)
    try:
        with opener.open(url, timeout=timeout_s) as answer:
            body: bytes = answer.read(MAX_BYTES + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return "", printable(str(error)) or type(error).__name__
    return ("", f"more than {MAX_BYTES} bytes") if len(body) > MAX_BYTES else (body.decode("utf-8", "replace"), "")


def parse_metrics(text: str) -> tuple[Sample, ...]:
    """The samples that we look at. A line that is none is passed over."""
    samples: list[Sample] = []
    for line in text.splitlines():
        if not line.startswith(_WANTED):
            continue
        match = _SAMPLE.match(line)
        if match is None or match[1] not in _WANTED or len(samples) >= MAX_SAMPLES:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if 0 <= value < BLANK:
            samples.append(Sample(match[1], dict(_LABEL.findall(match[2])), value))
    return tuple(samples)


def evidence_of(
    samples: tuple[Sample, ...], gpus: frozenset[str], uuids: Mapping[str, str], began_s_ago: float | None
) -> Evidence:
    """What the samples say of the job's GPUs. Pure. An exporter that has none of our metrics did not look."""
    if not samples:
        return Evidence(SENSOR, readable=False, detail="the exporter has none of the metrics that tell of faults")
    placed = [(sample, _address(sample, uuids)) for sample in samples]
    if not gpus & {pci for _, pci in placed}:
        return Evidence(SENSOR, readable=False, detail="the exporter names none of the job's GPUs")
    events: list[Event] = []
    notes: list[str] = []
    for sample, pci in placed:
        if pci in gpus and sample.value > 0:
            events += _events(sample, pci, began_s_ago)
            notes += _notes(sample, pci, began_s_ago)
    unique = tuple(dict.fromkeys(events))  # one sample for each MIG slice
    return Evidence(SENSOR, readable=True, events=unique, detail="; ".join(dict.fromkeys(notes)))


def _address(sample: Sample, uuids: Mapping[str, str]) -> str | None:
    """The GPU's address: newer exporters say it, older ones give the UUID. Not `device`: that is DCGM's own number."""
    labels = sample.labels
    return canonical_pci(labels.get("pci_bus_id", "")) or uuids.get(labels.get("UUID") or labels.get("uuid", ""))


def _events(sample: Sample, pci: str | None, began_s_ago: float | None) -> Iterator[Event]:
    if sample.metric == XID_COUNT:
        code = _whole(sample.labels.get("xid", ""))
        if code and _within(sample, began_s_ago):
            words = f"dcgm-exporter: GPU {pci}: Xid {code} counted {sample.value:g} times within the attempt"
            yield Event(EventKind.XID, code, pci, words)
    elif sample.metric in STATES:
        name, words = STATES[sample.metric]
        action = RECOVERY_ACTIONS.get(int(sample.value), int(sample.value)) if name == "recovery_action" else ""
        text = f"dcgm-exporter: GPU {pci}: {words} {action}".rstrip()
        yield Event(EventKind.GPU_STATE, None, pci, text, name=name + UNDATED)


def _notes(sample: Sample, pci: str | None, began_s_ago: float | None) -> Iterator[str]:
    if sample.metric == LAST_XID:
        yield f"GPU {pci}: the last Xid that DCGM saw, whenever that was, is {sample.value:g}"
    elif sample.metric == XID_COUNT and not _within(sample, began_s_ago):
        xid = printable(sample.labels.get("xid", "?"))[:6]
        yield f"GPU {pci}: DCGM counted Xid {xid} in a window that begins before the attempt"


def _within(sample: Sample, began_s_ago: float | None) -> bool:
    """Whether the window of the count lies within the attempt."""
    window_ms = _whole(sample.labels.get("window_size_in_ms", ""))
    return window_ms is not None and began_s_ago is not None and window_ms / 1000 <= began_s_ago


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 12 else None

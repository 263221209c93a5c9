"""What NVML said after an attempt, beside what it said when the attempt began -> events. Pure: no clock, no I/O.

A state or a counter proves nothing about this attempt by itself: a row remap may have been pending for weeks. So every
finding that lasts carries in its name when it came about:

    row_remap_pending           within the attempt: the snapshot of the node Prolog shows the GPU without it
    row_remap_pending_before    the snapshot has it already
    row_remap_pending_undated   there is no snapshot to tell

A counter that only counts up makes an event when it grew, and none without a snapshot. A GPU that is lost or refuses
to work without a reset needs no date: whatever ran on it could not go on. What explains no death (slow-down by heat or
power, replays on PCIe and NVLink) makes no event but a note, which the verdict quotes.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_ft.classify.catalogue import RECOVERY_ACTIONS
from slurm_ft.model import Event, EventKind
from slurm_ft.sensors.nvml_reading import GpuReading, Reading, Snapshot

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it costs the epilog milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BEFORE, UNDATED = "_before", "_undated"
MIN_SLOW_NS = 1_000_000_000  # of slow-down; less is the ordinary work of the clocks

# NVML's error codes (nvml.h), by what they say of the GPU or of the node. Others, such as 3 (not supported) and 13
# (function not found), say nothing.
NO_PERMISSION, NOT_FOUND, NOT_INSTALLED, UNKNOWN = 4, 6, 12, 999
GPU_ERRORS = {
    8: ("insufficient_power", "insufficient external power"),
    10: ("nvml_timeout", "NVML gave up waiting for the GPU"),
    11: ("irq_issue", "interrupts of the GPU do not arrive"),
    15: ("gpu_lost", "GPU is lost"),
    16: ("reset_required", "the GPU must be reset before it can be used again"),
    28: ("gpu_missing", "GPU not found"),
}
INFOROM = 14
NODE_ERRORS = {
    8: ("insufficient_power", "insufficient external power"),
    9: ("driver_not_loaded", "NVIDIA's driver is not loaded"),
    10: ("nvml_timeout", "time-out"),
    11: ("irq_issue", "interrupts of a GPU do not arrive"),
    15: ("nvml_unknown_error", "a GPU is lost"),
    18: ("library_mismatch", "NVML and the driver are of different versions"),
    UNKNOWN: ("nvml_unknown_error", "unknown error"),
}
# Bits of the fabric's health mask: (shift, width, the value that is bad, in words); nvml.h NVML_GPU_FABRIC_HEALTH_MASK.
_FABRIC_BITS = (
    (2, 0x3, 1, "route recovery in progress"),
    (4, 0x3, 1, "unhealthy route"),
    (6, 0x3, 1, "access time-out recovery"),
)
_FABRIC_DONE, _FABRIC_BAD = 3, 2


@dataclass(frozen=True, slots=True)
class Judged:
    """What a reading amounts to: events, and notes for whoever reads the verdict."""

    events: tuple[Event, ...]
    notes: tuple[str, ...]


def compare(reading: Reading, before: Snapshot | None, *, explained: bool = False) -> Judged:
    """The events of a reading of the job's GPUs. `before` is the snapshot taken when the attempt began.

    `explained`: the kernel log holds a code that does not tell hardware from program. A recovery action asked for in
    the attempt is then that code's consequence: the node still needs it, but it convicts nobody (Xid 109).
    """
    events = [*_node_events(reading, before)]
    notes: list[str] = []
    for gpu in reading.gpus:
        earlier = _same_gpu(gpu, before)
        events += _gpu_events(gpu, earlier, explained=explained)
        notes += _notes(gpu, earlier)
    return Judged(tuple(events), tuple(notes))


def hang(pci: str | None, timeout_s: float, before: Snapshot | None) -> Event:
    """NVML did not answer in time. That it answered quickly when the attempt began shows that it now hangs; without
    such a measure a slow start is as likely (seconds for each GPU where persistence mode is off)."""
    quick = before is not None and before.complete and before.error is None and before.took_s * 2 <= timeout_s
    words = f"no answer within {timeout_s:g} s"
    if quick and before is not None:
        return _event("nvml_hang", pci, "", f"{words}; {before.took_s:.1f} s when the attempt began")
    return _event("nvml_timeout", pci, "", words)


def _same_gpu(gpu: GpuReading, before: Snapshot | None) -> GpuReading | None:
    """The GPU in the snapshot, if it is the same one."""
    earlier = before.gpu(gpu.pci) if before else None
    if earlier is None or (gpu.uuid and earlier.uuid and gpu.uuid != earlier.uuid):
        return None
    return earlier


def _node_events(reading: Reading, before: Snapshot | None) -> Iterator[Event]:
    if reading.error in NODE_ERRORS:
        name, words = NODE_ERRORS[reading.error]
        yield _event(name, None, "", f"{words} (NVML error {reading.error})")
    expected = before.count if before else None
    if expected is not None and reading.count is not None and reading.count < expected:
        yield _event("gpu_count_fell", None, "", f"{reading.count} GPUs answer, {expected} when the attempt began")


def _gpu_events(gpu: GpuReading, earlier: GpuReading | None, *, explained: bool) -> Iterator[Event]:
    yield from _error_events(gpu, earlier)
    for name, words in _states(gpu.values).items():
        dated = _dated(name, None if earlier is None else earlier.values, gpu.values)
        if dated == "recovery_action" and explained:
            dated = "recovery_action_explained"
        yield _event(dated, gpu.pci, gpu.uuid, words)
    if earlier is not None:
        yield from _growth_events(gpu, earlier)


def _dated(name: str, earlier: Mapping[str, int] | None, now: Mapping[str, int]) -> str:
    """`name` with the suffix that says when. Slices of one GPU (MIG) belong to several jobs: there nothing is dated.
    Neither is what NVML did not answer when the attempt began."""
    if earlier is None or now.get("mig") or _VALUE_OF.get(name, "fabric_state") not in earlier:
        return name + UNDATED
    return name + BEFORE if name in _states(earlier) else name


_VALUE_OF = {
    "recovery_action": "recovery_action",
    "row_remap_failure": "remap_failure",
    "sram_threshold": "sram_threshold",
    "row_remap_pending": "remap_pending",
    "page_retirement_pending": "retired_pending",
}


def _states(values: Mapping[str, int]) -> dict[str, str]:
    """The lasting states that are not as they should be: name -> words."""
    found = {}
    action = values.get("recovery_action", 0)
    if action:
        found["recovery_action"] = f"recovery action {RECOVERY_ACTIONS.get(action, action)}"
    if values.get("remap_failure"):
        found["row_remap_failure"] = "a memory row could not be remapped: no spare rows are left"
    if values.get("sram_threshold"):
        found["sram_threshold"] = "SRAM errors have passed NVIDIA's limit: a field diagnosis is called for"
    if values.get("remap_pending"):
        found["row_remap_pending"] = "a memory row waits for a reset to be remapped"
    if values.get("retired_pending"):
        found["page_retirement_pending"] = "a memory page waits for a reset to be retired"
    return found | _fabric_states(values)


def _fabric_states(values: Mapping[str, int]) -> dict[str, str]:
    state, mask = values.get("fabric_state", 0), values.get("fabric_health", 0)
    if state == 0:  # not supported: no fabric
        return {}
    if state != _FABRIC_DONE or values.get("fabric_status"):
        return {"fabric_not_ready": f"fabric state {state}, status {values.get('fabric_status', 0)}"}
    bad = [words for shift, width, value, words in _FABRIC_BITS if mask >> shift & width == value]
    if values.get("fabric_summary") == _FABRIC_BAD or bad:
        return {"fabric_unhealthy": f"NVLink fabric unhealthy ({', '.join(bad) or 'summary'})"}
    return {}


# Counters of events that end what runs on the GPU: (value, event, words).
_FATAL_COUNTERS = (
    ("ecc_volatile", "ecc_uncorrected_now", "uncorrectable ECC errors"),
    ("ecc_aggregate", "ecc_uncorrected_now", "uncorrectable ECC errors"),
    ("remap_uncorrected", "row_remapped", "rows remapped after uncorrectable errors"),
    ("retired_double_bit", "page_retired", "pages retired after double-bit errors"),
    ("pcie_fatal", "pcie_fatal", "fatal PCIe errors"),
    ("nvlink_recovery_failed", "nvlink_recovery_failed", "NVLink recoveries that failed"),
)


def _growth_events(gpu: GpuReading, earlier: GpuReading) -> Iterator[Event]:
    said = set()
    for value, name, words in _FATAL_COUNTERS:
        more = _growth(value, gpu, earlier)
        if more > 0 and name not in said:
            said.add(name)
            yield _event(
                name + ("_shared" if gpu.values.get("mig") else ""),
                gpu.pci,
                gpu.uuid,
                f"{more} {words} since the attempt began",
            )


def _growth(name: str, gpu: GpuReading, earlier: GpuReading) -> int:
    """How much a counter grew; nothing if either end is unknown, or if it was set back (driver reload, GPU reset)."""
    now, then = gpu.values.get(name), earlier.values.get(name)
    return 0 if now is None or then is None else max(now - then, 0)


def _error_events(gpu: GpuReading, earlier: GpuReading | None) -> Iterator[Event]:
    """One event for each sort of error, whichever calls it ended."""
    by_code: dict[int, str] = {}
    for call, code in gpu.errors.items():
        by_code.setdefault(code, call)
    for code, call in by_code.items():
        name = _error_name(code, call, earlier)
        if name:
            words = GPU_ERRORS[code][1] if code in GPU_ERRORS else _OTHER_ERRORS[name.removesuffix(BEFORE)]
            yield _event(name, gpu.pci, gpu.uuid, f"{words} (NVML error {code} of {call})")


_OTHER_ERRORS = {
    "gpu_missing": "NVML no longer knows the GPU",
    "gpu_not_found_undated": "NVML knows no GPU at this address",
    "gpu_not_found": "NVML knows no GPU at this address",
    "gpu_cannot_be_opened": "unable to determine the device handle: unknown error, twice",
    "nvml_unknown_error": "unknown error, twice",
    "inforom_corrupted": "the GPU's InfoROM is corrupted",
    "inforom_corrupted_undated": "the GPU's InfoROM is corrupted",
}


def _error_name(code: int, call: str, earlier: GpuReading | None) -> str:
    if code in GPU_ERRORS:
        return GPU_ERRORS[code][0]
    if code == UNKNOWN:
        return "gpu_cannot_be_opened" if call == "handle" else "nvml_unknown_error"
    if code == NOT_FOUND and call == "handle":
        if earlier is None:
            return "gpu_not_found" + UNDATED
        # Missing at the start too: the configured address may be wrong.
        return "gpu_not_found" + BEFORE if "handle" in earlier.errors else "gpu_missing"
    if code == INFOROM:
        known = None if earlier is None else INFOROM in earlier.errors.values()
        return "inforom_corrupted" + {None: UNDATED, True: BEFORE, False: ""}[known]
    return ""


def _notes(gpu: GpuReading, earlier: GpuReading | None) -> Iterator[str]:
    """What the reader of a verdict may want to know although it ends no job."""
    if earlier is None:
        return
    for name, words in (("slow_hw_thermal_ns", "heat"), ("slow_power_brake_ns", "the power brake")):
        slow = _growth(name, gpu, earlier)
        if slow >= MIN_SLOW_NS:
            yield f"GPU {gpu.pci} was slowed down by {words} for {slow / 1e9:.0f} s"
    if gpu.values.get("remap_banks_used_up"):
        yield f"GPU {gpu.pci}: {gpu.values['remap_banks_used_up']} memory banks have no spare row left"
    replays = _growth("pcie_replay", gpu, earlier)
    if replays:
        yield f"GPU {gpu.pci}: {replays} PCIe replays"
    links = sum(_growth(name, gpu, earlier) for name in _LINK_COUNTERS)
    if links:
        yield f"GPU {gpu.pci}: {links} NVLink errors that were recovered from"


_LINK_COUNTERS = (
    "nvlink_replay",
    "nvlink_recovery",
    "nvlink_crc",
    "nvlink_receive_errors",
    "nvlink_integrity_errors",
)


def _event(name: str, pci: str | None, uuid: str, words: str) -> Event:
    where = (f" GPU {pci}" if pci else "") + (f" ({uuid})" if uuid else "")
    return Event(EventKind.GPU_STATE, None, pci, f"NVML:{where}{where and ':'} {words}", name=name)

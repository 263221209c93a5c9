"""Reads NVML once and prints what it says, as JSON lines. A program, run by path: see nvml.py for who starts it.

    nvml_child.py 0000:3b:00 0000:5e:00

It stands alone, so that it starts fast: the interpreter in isolated mode, nvidia-ml-py and nothing of slurm_ft.
NVML may hang for ever in any of its calls. Each line is written at once, so that whoever waits knows how far it came:

    {"schema": 1, "driver": "570.124.06", "count": 8, "error": null}
    {"pci": "0000:3b:00", "uuid": "GPU-...", "values": {"recovery_action": 0, ...}, "errors": {"remapped_rows": 3}}
    {"end": true}

`values` holds only what NVML answered with success; `errors` NVML's error code of each call that failed.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

SCHEMA = 1
ASK_AGAIN = (10, 999)  # time-out, unknown error: may pass
PAUSE_S = 0.2
NOT_FOUND_IN_LIBRARY = 13
UNCORRECTED, VOLATILE, AGGREGATE = 1, 0, 1
DOUBLE_BIT = 1  # the cause of a page retirement
MAX_LINKS = 18

# nvml.h: field ids. Nanosecond counters of slow-down, by cause, since the driver was loaded.
FIELDS = {
    "recovery_action": 230,
    "pcie_fatal": 180,
    "slow_power_cap_ns": 74,
    "slow_thermal_ns": 75,
    "slow_sw_thermal_ns": 269,
    "slow_hw_thermal_ns": 270,
    "slow_power_brake_ns": 271,
}
# Asked of each link (scope) and added up; which of them a GPU has differs between Ampere, Hopper and Blackwell.
LINK_FIELDS = {
    "nvlink_replay": 161,
    "nvlink_recovery": 162,
    "nvlink_crc": 163,
    "nvlink_receive_errors": 208,
    "nvlink_integrity_errors": 211,
    "nvlink_recovery_failed": 214,
}
_VALUE = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t

Values = dict[str, int]


def say(line: dict[str, Any]) -> None:
    """Write one line at once."""
    os.write(1, json.dumps(line).encode() + b"\n")


class Gpu:
    """One GPU's answers, gathered call by call."""

    def __init__(self, nvml: Any, pci: str) -> None:
        self.nvml = nvml
        self.pci = pci
        self.uuid = ""
        self.handle: Any = None
        self.values: Values = {}
        self.errors: Values = {}

    def ask(self, name: str, call: Callable[[], Any]) -> Any:
        """What `call` answers; None after an error, which is noted. Asks again once where that may help."""
        code = 0
        for pause in (0.0, PAUSE_S):
            time.sleep(pause)
            try:
                return call()
            except self.nvml.NVMLError as error:
                code = error.value
            except AttributeError:  # an older nvidia-ml-py
                code = NOT_FOUND_IN_LIBRARY
            if code not in ASK_AGAIN:
                break
        self.errors[name] = code
        return None

    def read(self) -> None:
        """Ask everything. A GPU that cannot be opened answers nothing else."""
        nvml, address = self.nvml, f"{self.pci}.0"
        self.handle = handle = self.ask("handle", lambda: nvml.nvmlDeviceGetHandleByPciBusId(address.encode()))
        if handle is None:
            return
        self.uuid = self.ask("uuid", lambda: nvml.nvmlDeviceGetUUID(handle)) or ""
        self.put(("mig",), "mig", lambda: nvml.nvmlDeviceGetMigMode(handle)[:1])
        self.fields(FIELDS.items())
        self.memory()
        self.fabric()
        self.put(("pcie_replay",), "pcie_replay", lambda: [nvml.nvmlDeviceGetPcieReplayCounter(handle)])
        self.links()

    def put(self, names: tuple[str, ...], call_name: str, call: Callable[[], Iterable[int]]) -> None:
        """Keep the numbers that one call answers with."""
        numbers = self.ask(call_name, call)
        if numbers is not None:
            self.values.update(zip(names, map(int, numbers), strict=False))

    def memory(self) -> None:
        """Row remapping (Ampere and newer, not with MIG on), page retirement (older), ECC counters."""
        nvml, handle = self.nvml, self.handle
        rows = ("remap_corrected", "remap_uncorrected", "remap_pending", "remap_failure")
        self.put(rows, "remapped_rows", lambda: nvml.nvmlDeviceGetRemappedRows(handle))
        # Not ..._v2: the binding calls that one with an argument too few (13.615).
        self.put(
            ("retired_double_bit",),
            "retired_pages",
            lambda: [len(nvml.nvmlDeviceGetRetiredPages(handle, DOUBLE_BIT))],
        )
        self.put(("retired_pending",), "retired_pending", lambda: [nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)])
        self.put(
            ("remap_banks_used_up",), "remap_histogram", lambda: [nvml.nvmlDeviceGetRowRemapperHistogram(handle).none]
        )
        self.put(("sram_threshold",), "sram", lambda: [self.sram_threshold()])
        self.put(
            ("ecc_volatile",), "ecc_volatile", lambda: [nvml.nvmlDeviceGetTotalEccErrors(handle, UNCORRECTED, VOLATILE)]
        )
        self.put(
            ("ecc_aggregate",),
            "ecc_aggregate",
            lambda: [nvml.nvmlDeviceGetTotalEccErrors(handle, UNCORRECTED, AGGREGATE)],
        )

    def sram_threshold(self) -> int:
        """1 when the uncorrectable errors of the GPU's SRAM have passed NVIDIA's limit for a replacement."""
        status = self.nvml.c_nvmlEccSramErrorStatus_v1_t()
        self.nvml.nvmlDeviceGetSramEccErrorStatus(self.handle, ctypes.byref(status))
        return int(status.bThresholdExceeded)

    def fabric(self) -> None:
        """The state of the NVLink fabric, in the newest version of the structure that the driver knows."""
        versions = [getattr(self.nvml, f"c_nvmlGpuFabricInfo_v{number}_t", None) for number in (3, 2)]
        for structure in filter(None, versions):
            info = structure()
            self.errors.pop("fabric", None)
            place = ctypes.byref(info)  # the binding hands over what it is given, a structure by value too
            # What the call returns is its success, 0.
            if self.ask("fabric", partial(self.nvml.nvmlDeviceGetGpuFabricInfoV, self.handle, place)) is not None:
                self.values["fabric_state"], self.values["fabric_status"] = info.state, info.status
                self.values["fabric_health"] = info.healthMask
                self.values["fabric_summary"] = getattr(info, "healthSummary", 0)
                return

    def fields(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Field values, each with a return code of its own."""
        pairs = list(wanted)
        answers = self.ask(
            "fields", lambda: self.nvml.nvmlDeviceGetFieldValues(self.handle, [number for _, number in pairs])
        )
        for (name, _), answer in zip(pairs, answers or (), strict=False):
            number = field_value(answer)
            if number is None:
                self.errors[name] = answer.nvmlReturn
            else:
                self.values[name] = number

    def links(self) -> None:
        """NVLink counters, added up over the links that answer."""
        asked = [(name, number, link) for name, number in LINK_FIELDS.items() for link in range(MAX_LINKS)]
        wanted = [(number, link) for _, number, link in asked]
        answers = self.ask("links", lambda: self.nvml.nvmlDeviceGetFieldValues(self.handle, wanted))
        for (name, _, _), answer in zip(asked, answers or (), strict=False):
            number = field_value(answer)
            if number is not None:
                self.values[name] = self.values.get(name, 0) + number


def field_value(answer: Any) -> int | None:
    """The number in a field's answer; None if its own return code is no success, or its type is unknown."""
    if answer.nvmlReturn != 0 or not 0 <= answer.valueType < len(_VALUE):
        return None
    return int(getattr(answer.value, _VALUE[answer.valueType]))


def text_of(value: Any) -> str:
    """The binding's texts are bytes in older versions."""
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def read_all(nvml: Any, addresses: list[str]) -> None:
    """Read the node, then each GPU."""
    node = Gpu(nvml, "")
    node.ask("init", lambda: [nvml.nvmlInit()])
    failed = node.errors.get("init")
    if failed is None:
        driver = node.ask("driver", nvml.nvmlSystemGetDriverVersion)
        count = node.ask("count", nvml.nvmlDeviceGetCount)
        say({"schema": SCHEMA, "error": None, "driver": text_of(driver or ""), "count": count})
        for pci in addresses:
            gpu = Gpu(nvml, pci)
            gpu.read()
            say({"pci": pci, "uuid": text_of(gpu.uuid), "values": gpu.values, "errors": gpu.errors})
    else:
        say({"schema": SCHEMA, "error": failed, "driver": "", "count": None})
    say({"end": True})


def main() -> None:
    """Print the reading. Ends without nvmlShutdown, which may hang as well."""
    os.closerange(3, 1024)  # a child that hangs for ever must hold nothing of the hook's
    try:
        import pynvml  # noqa: PLC0415 - what is missing is said, not raised
    except ImportError:
        say({"schema": SCHEMA, "error": 12, "driver": "", "count": None})
        say({"end": True})
        return
    read_all(pynvml, sys.argv[1:])


if __name__ == "__main__":
    main()
    os._exit(0)

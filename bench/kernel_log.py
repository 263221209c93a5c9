"""How long 100 MB of kernel log take, as `slurm-ft classify FILE` reads them and as the epilog's sensor does.

    python bench/kernel_log.py              # no root; about half a minute

The log is made up: mostly other drivers' lines, one line in a hundred the GPU driver's, and one hardware fault at the
end, which must be found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import table

from slurm_ft.model import Event
from slurm_ft.sensors.kernel_log import Window, read_kernel_log
from slurm_ft.sensors.text_log import events_in_text

TARGET_S = 5.0
GPU = "0000:3b:00"
OTHERS = (
    'audit: type=1400 audit(1700000000.123:456): apparmor="STATUS" operation="profile_load" name="x" pid=',
    "usb 1-1: new high-speed USB device number 5 using xhci_hcd, serial ",
    "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Quota mode: none. ",
    "mlx5_core 0000:5e:00.0 ib0: Link up ",
    "INFO: task python:4711 blocked for more than 120 seconds. ",
)
XID = f"NVRM: Xid (PCI:{GPU}): 31, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS pid="
FAULT = f"NVRM: Xid (PCI:{GPU}): 79, pid=7, name=python, GPU has fallen off the bus."


def write(path: Path, megabytes: int, *, raw: bool) -> int:
    """Fill `path`; returns the number of lines."""
    number, size = 0, 0
    with path.open("w", encoding="ascii", newline="\n") as file:
        while size < megabytes * 1_000_000:
            number += 1
            message = f"{XID if number % 100 == 0 else OTHERS[number % len(OTHERS)]}{number}"
            size += file.write(line(number, message, raw=raw))
        file.write(line(number + 1, FAULT, raw=raw))
    return number + 1


def line(number: int, message: str, *, raw: bool) -> str:
    return f"6,{number},{number * 1000},-;{message}\n" if raw else f"[{number / 1000:.6f}] {message}\n"


def as_text(path: Path) -> tuple[Event, ...]:
    return events_in_text(path.read_bytes())


def as_sensor(path: Path) -> tuple[Event, ...]:
    window = Window(marker=None, start=0.0, end=None, grace=0.0, boot_id=None)
    evidence = read_kernel_log(path, window, frozenset({GPU}), budget_s=60.0, boot_id="", max_records=10_000_000)
    return evidence.events


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how long a large kernel log takes.")
    parser.add_argument("--megabytes", type=int, default=100, help="size of the log (default: 100)")
    megabytes = max(parser.parse_args().megabytes, 1)
    rows, missed = [], 0
    for name, raw, read in (("dmesg text, classify FILE", False, as_text), ("raw records, sensor", True, as_sensor)):
        with tempfile.TemporaryDirectory(prefix="slurm_ft-bench-") as directory:
            path = Path(directory) / "kernel.log"
            lines = write(path, megabytes, raw=raw)
            start, cpu = time.perf_counter(), time.process_time()
            events = read(path)
            took, cpu = time.perf_counter() - start, time.process_time() - cpu
        if 79 not in [event.code for event in events]:
            print(f"bench/kernel_log.py: {name}: the fault in the last line was not found", file=sys.stderr)
            return 1
        missed += took > TARGET_S
        rows.append([name, str(lines), f"{took:.2f}", f"{cpu:.2f}", f"<= {TARGET_S:g}", table.verdict(took, TARGET_S)])
    table.show(f"Reading {megabytes} MB of kernel log, in seconds", ["way", "lines", "s", "cpu s", "target", ""], rows)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

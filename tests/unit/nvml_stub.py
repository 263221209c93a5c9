"""A libnvidia-ml.so.1 built from tests/stubs/nvml_stub.c, and the script that says what it answers."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "stubs" / "nvml_stub.c"
FIRST, SECOND = "0000:3b:00", "0000:5e:00"
UUIDS = {FIRST: "GPU-265c9814-6156-355b-e589-ff2064894f16", SECOND: "GPU-5e5e5e5e-0000-0000-0000-000000000000"}

# What a GPU in good health answers.
HEALTHY = (
    "mig {gpu} 0 0",
    "field_230 {gpu} 0 0 1",
    "field_180 {gpu} 0 0",
    "remapped_rows {gpu} 0 0 0 0 0",
    "retired_pending {gpu} 0 0",
    "remap_histogram {gpu} 0 0",
    "sram {gpu} 0 0",
    "ecc_volatile {gpu} 0 0",
    "ecc_aggregate {gpu} 0 2",
    "fabric {gpu} 0 3 0 0x2a 1",
    "pcie_replay {gpu} 0 5",
    "field_163 {gpu} 0 7 3 0",
    "field_270 {gpu} 0 1000",
)


class NvmlStub:
    """The library that nvidia-ml-py loads in this test."""

    def __init__(self, script: Path) -> None:
        self.script = script
        self.answers()

    def answers(self, *lines: str) -> None:
        """Two GPUs in good health, except for `lines`, which go first: `CALL GPU RETURN VALUES...`."""
        gpus = [f"gpu {pci} {uuid}" for pci, uuid in UUIDS.items()]
        healthy = [line.format(gpu=gpu) for gpu in (0, 1) for line in HEALTHY]
        self.script.write_text("\n".join([*gpus, *lines, *healthy]) + "\n")


def build(directory: Path, *options: str) -> Path:
    """Compile the stub; returns the directory to put on LD_LIBRARY_PATH."""
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / "libnvidia-ml.so.1"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", *options, "-o", library, SOURCE]
    subprocess.run(command, check=True)
    return directory

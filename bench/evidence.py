"""What the judgement of a failed job costs on its node, all sensors on: `slurm-ft hook node-epilog` from start to end.

    python bench/evidence.py            # root; needs gcc, about half a minute

The kernel log is the machine's own, with a marker of this attempt. The job's output, a libnvidia-ml.so.1 (the tests'
stand-in, under the real nvidia-ml-py) and a dcgm-exporter are made here. The job ended `0:6` without a word about why,
so every sensor is asked; no Slurm is, since nobody is to blame.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import table

from slurm_ft.node import judgement_file

ROOT = Path(__file__).parents[1]
COMMAND = Path(sys.executable).with_name("slurm-ft")
TARGET_MS = 400.0
SENSORS = {"kernel_log", "job_output", "nvml", "dcgm"}
GPUS = ("0000:3b:00", "0000:5e:00")
MARKER = "slurm_ft: start job=12.0 node=bench id=bench-evidence"
METRICS = "".join(
    f'DCGM_FI_DEV_XID_ERRORS{{gpu="{number}",pci_bus_id="0000{pci.upper()}.0"}} 0\n' for number, pci in enumerate(GPUS)
)


class Exporter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(METRICS.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


def prepare(directory: Path, port: int) -> dict[str, str]:
    """Make the node in `directory`; returns the hook's environment."""
    source = ROOT / "tests" / "stubs" / "nvml_stub.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", directory / "libnvidia-ml.so.1", source], check=True)
    script = "".join(f"gpu {pci} GPU-{number}\nfield_230 {number} 0 0 1\n" for number, pci in enumerate(GPUS))
    (directory / "script").write_text(script)
    (directory / "job.log").write_text("step 1 loss 2.5\n" * 9000)
    config = {
        "gpu_inventory": {"bench": [f"{pci}.0" for pci in GPUS]},
        "state_dir": f"{directory}/state",
        "log_file": f"{directory}/log",
        "dcgm": f"http://127.0.0.1:{port}/metrics",
    }
    (directory / "slurm_ft.yaml").write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in config.items()))
    begin(directory)
    return {
        "SLURM_JOB_ID": "12", "SLURM_JOB_RESTART_COUNT": "0", "SLURMD_NODENAME": "bench", "SLURM_JOB_GPUS": "0,1",
        "SLURM_JOB_UID": str(os.getuid()), "SLURM_JOB_GID": str(os.getgid()), "SLURM_JOB_USER": "root",
        "SLURM_JOB_EXIT_CODE2": "0:6", "SLURM_JOB_NODELIST": "bench", "SLURM_JOB_STDOUT": f"{directory}/job.log",
        "SLURM_FT_CONFIG": f"{directory}/slurm_ft.yaml", "SLURM_FT_RUN_DIR": str(directory),
        "LD_LIBRARY_PATH": str(directory), "NVML_STUB": f"{directory}/script",
    }  # fmt: skip


def begin(directory: Path) -> None:
    """What the node Prolog leaves."""
    Path("/dev/kmsg").write_text(f"{MARKER}\n")
    uptime = Path("/proc/uptime").read_text().split()[0]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (directory / "attempts").mkdir()
    (directory / "attempts" / "bench.12").write_text(f"{MARKER}\n{boot}\n{uptime}\n0,1\n0\n")


def run_ms(environ: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run([str(COMMAND), "hook", "node-epilog"], env=environ, check=True)
    return (time.perf_counter() - began) * 1000


def check(directory: Path) -> None:
    """That every sensor was asked and could look: else the number would be of something else."""
    last = judgement_file.read(judgement_file.path_of(directory / "state", "bench"))[-1]
    asked = {one.sensor for one in last.seen if one.readable}
    if asked < SENSORS:
        raise SystemExit(f"bench/evidence.py: only {sorted(asked)} of {sorted(SENSORS)} answered: {last}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the judgement of a failed job with all sensors (root).")
    parser.add_argument("--runs", type=int, default=40, help="measured runs (default: 40)")
    runs = max(parser.parse_args().runs, 2)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="slurm_ft-bench-") as name:
        environ = prepare(Path(name), server.server_port)
        times = [run_ms(environ) for _ in range(runs)]
        check(Path(name))
    median, most = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    row = [
        "epilog of a failed job, all sensors",
        f"{min(times):.0f}",
        f"{median:.0f}",
        f"{most:.0f}",
        f"<= {TARGET_MS:g}",
    ]
    title = f"The judgement of a failed job in ms, {runs} runs"
    table.show(title, ["", "min", "median", "p95", "target", ""], [[*row, table.verdict(median, TARGET_MS)]])
    return 0


if __name__ == "__main__":
    sys.exit(main())

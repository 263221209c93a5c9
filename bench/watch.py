"""What `slurm-ft watch` costs a node, and how long it takes from the grace time's end to the drain and the restart.

    python bench/watch.py               # root; about a minute and a half

A local Slurm cluster runs jobs that hang after a fault of their GPU; the watcher is the real command, one on the job's
node. Lines of others in the shared kernel log wake it as they would on a busy node.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import table

from slurm_ft.errors import SlurmFtError
from slurm_ft.lab import Lab, LabSpec

GRACE_S = 1.0
TARGET_DRAIN_S = 2.0
TARGET_MIB = 50.0
TARGET_CPU = 0.5  # percent of one core: "near zero"
HANGS = "#!/bin/sh\nsleep 600\n"
FELL_OFF = "GPU has fallen off the bus."


def start(lab: Lab, node: str) -> subprocess.Popen[str]:
    environ = lab.environment() | {
        "SLURM_FT_CONFIG": str(lab.layout.config),
        "SLURM_FT_RUN_DIR": str(lab.layout.run / "slurm_ft"),
    }
    watcher = subprocess.Popen(
        [str(lab.command), "watch", "--node", node], env=environ, stderr=subprocess.PIPE, text=True
    )
    if watcher.stderr is None or not watcher.stderr.readline():
        raise SlurmFtError(f"the watcher of {node} did not start", f"See {lab.layout.log}")
    return watcher


def stop(watcher: subprocess.Popen[str]) -> None:
    watcher.terminate()
    watcher.communicate(timeout=20)


def resident_mib(pid: int) -> float:
    """The most it ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def hang(lab: Lab) -> tuple[float, float, float]:
    """One job that hangs. Seconds from the end of the grace time to the drain and to the restart; peak MiB."""
    job = lab.sbatch(HANGS, "--comment=[slurm_ft]", "--requeue", "--gres=gpu:1", "--output=/dev/null")
    bad = lab.wait_job(job, "RUNNING")["nodelist"]
    watcher = start(lab, bad)
    try:
        time.sleep(1)
        lab.inject_xid(bad, 0, 79, FELL_OFF)
        due = time.monotonic() + GRACE_S
        lab.wait_node(bad, "draining", "drained")
        drained = time.monotonic() - due
        lab.wait_for(lambda: _runs_again(lab, job))
        return drained, time.monotonic() - due, resident_mib(watcher.pid)
    finally:
        stop(watcher)
        lab.run("scancel", str(job))
        lab.wait_job(job, "CANCELLED", "FAILED")
        lab.run("scontrol", "update", f"NodeName={bad}", "State=RESUME")
        lab.wait_node(bad, "idle")


def _runs_again(lab: Lab, job: int) -> bool:
    found = lab.job(job)
    return (found["state"], found["restarts"]) == ("RUNNING", "1")


def idle_percent(lab: Lab, seconds: float) -> float:
    watcher = start(lab, lab.nodes[0])
    try:
        time.sleep(1)
        before = cpu_s(watcher.pid)
        time.sleep(seconds)
        return 100 * (cpu_s(watcher.pid) - before) / seconds
    finally:
        stop(watcher)


def measure(rounds: int, idle_s: float) -> None:
    with Lab(LabSpec(gpus_per_node=1, config={"watch_grace": GRACE_S})) as lab:
        idle = idle_percent(lab, idle_s)
        done = [hang(lab) for _ in range(rounds)]
        drains, restarts, mib = ([one[k] for one in done] for k in range(3))
        rows = [
            ["end of the grace time -> drain, s", *_spread(drains), f"<= {TARGET_DRAIN_S:g}",
             table.verdict(max(drains), TARGET_DRAIN_S)],
            ["end of the grace time -> runs again, s", *_spread(restarts), "", ""],
            ["resident memory, peak, MiB", *_spread(mib), f"<= {TARGET_MIB:g}", table.verdict(max(mib), TARGET_MIB)],
            [f"CPU while nothing happens ({idle_s:g} s), %", "", f"{idle:.2f}", "", f"<= {TARGET_CPU:g}",
             table.verdict(idle, TARGET_CPU)],
        ]  # fmt: skip
        table.show(f"The watcher, {rounds} hanging jobs", ["", "min", "median", "max", "target", ""], rows)
        print(f"\n{table.host(lab.slurm.version)}")


def _spread(values: list[float]) -> list[str]:
    return [f"{value:.2f}" for value in (min(values), statistics.median(values), max(values))]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the watcher on a local Slurm cluster (root).")
    parser.add_argument("--rounds", type=int, default=5, help="hanging jobs (default: 5)")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds of idling (default: 30)")
    options = parser.parse_args()
    try:
        measure(max(options.rounds, 1), max(options.idle, 1.0))
    except SlurmFtError as error:
        print(f"bench/watch.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`slurm-ft status` of ten thousand jobs beside the squeue call that it makes, and beside a plain squeue.

    python bench/status.py                      # root; a few minutes

The jobs are an array of held tasks on a real slurmctld. With `--apart` (default) each task is given a Comment first,
which makes it a job of its own inside slurmctld, and every tenth a ledger; without, they are one record that squeue
unfolds. What slurmctld was asked comes from its own statistics (sdiag). All commands are run in turn, with their output
to a pipe; the ratio is of the medians.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import table

from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import ledger
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.lab.spec import NO_HOOKS
from slurm_ft.model import Attempt, Domain, Ledger
from slurm_ft.slurm.fields import JOB_FIELDS

TARGET = 1.5
PART = 500  # tasks that one scontrol is given
FAILED_OVER = 10  # one task in so many
CONTROL, OURS = "the squeue call that it makes", "slurm-ft status"


def environment(lab: Lab) -> dict[str, str]:
    return {**os.environ, "SLURM_CONF": str(lab.slurm_conf), "SLURM_FT_CONFIG": str(lab.base / "etc" / "slurm_ft.yaml")}


def submit(lab: Lab, tasks: int, *, apart: bool) -> None:
    """Held tasks; `apart`: each with a Comment of its own, and every tenth as if it had been failed over once."""
    job = lab.sbatch("#!/bin/sh\n", f"--array=0-{tasks - 1}", "--hold", "--comment=[slurm_ft]", "--output=/dev/null")
    for first in range(0, tasks, PART) if apart else ():
        part = f"JobId={job}_[{first}-{min(first + PART, tasks) - 1}]"
        lab.run("scontrol", "update", part, "Comment=team=vision [slurm_ft]", timeout_s=300)
    for task in range(0, tasks, FAILED_OVER) if apart else ():
        changes = ("Comment=team=vision [slurm_ft n=1/3 ex=n1 cause=xid79]", f"AdminComment={history(task)}")
        lab.run("scontrol", "update", f"JobId={job}_{task}", *changes)


def history(task: int) -> str:
    """A ledger that no two tasks share."""
    text = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    attempt = Attempt(0, "n1", 1e9, 1.1e9, Domain.HARDWARE, "xid79", ("n1",), counted=True, text=text, step=1200)
    return ledger.write("", Ledger(f"{task:012x}", (attempt,), ("n1",)))


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a command: seconds by the wall clock, seconds of a core (its children's too), and lines printed."""

    wall: float
    core: float
    lines: int


def run(command: Sequence[str], env: Mapping[str, str]) -> Run:
    began, before = time.perf_counter(), os.times()
    done = subprocess.run(command, env=dict(env), capture_output=True, check=True)
    after = os.times()
    core = after.children_user + after.children_system - before.children_user - before.children_system
    return Run(time.perf_counter() - began, core, done.stdout.count(b"\n"))


def requests(lab: Lab, command: Sequence[str], env: Mapping[str, str]) -> str:
    """What slurmctld was asked for this command."""
    lab.run("sdiag", "-r")
    run(command, env)
    counts = re.findall(r"^\s*(REQUEST_\w+)\s*\(\s*\d+\)\s*count:(\d+)", lab.run("sdiag"), re.MULTILINE)
    return ", ".join(f"{number} {name}" for name, number in counts if "STATS" not in name)


def measure(lab: Lab, runs: int) -> tuple[dict[str, list[Run]], str]:
    """The runs of each command, and the requests that one status makes."""
    squeue = str(lab.slurm_bin / "squeue")
    wide = ",".join(f"{name}:#0123456789abcdef#" for name in JOB_FIELDS)
    ours = [str(Path(sys.executable).with_name("slurm-ft")), "status"]
    commands = {
        CONTROL: [squeue, "-h", "-r", "-a", "--states=all", "-O", wide],
        OURS: ours,
        "slurm-ft status --json": [*ours, "--json"],
        "plain `squeue -r`": [squeue, "-r"],
    }
    env, done = environment(lab), {name: list[Run]() for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            done[name].append(run(command, env))
    return done, requests(lab, ours, env)


def report(done: Mapping[str, Sequence[Run]]) -> None:
    def median(name: str) -> float:
        return statistics.median(one.wall for one in done[name])

    lines = []
    for name, runs in done.items():
        walls, ratio = [one.wall for one in runs], median(name) / median(CONTROL)
        core = statistics.median(one.core for one in runs)
        verdict = table.verdict(ratio, TARGET) if name == OURS else ""
        lines.append(
            [name, *(f"{value:.2f}" for value in (median(name), min(walls), max(walls), core, ratio)), verdict]
        )
    header = ["", "median", "min", "max", "of a core", "ratio", f"target {TARGET:g}"]
    table.show(f"{done[OURS][0].lines - 1} jobs, seconds", header, lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--apart", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    conf = (f"MaxArraySize={options.jobs + 1}", f"MaxJobCount={2 * options.jobs + 100}", "SlurmctldDebug=error")
    try:
        with Lab(LabSpec(nodes=3, slurm_conf=conf, hooks=NO_HOOKS)) as lab:
            submit(lab, options.jobs, apart=options.apart)
            done, asked = measure(lab, options.runs)
            version = lab.slurm.version
    except SlurmFtError as error:
        print(f"bench/status.py: {error}", file=sys.stderr)
        return 1
    report(done)
    print(f"\none status asks slurmctld: {asked}\n{table.host(version)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

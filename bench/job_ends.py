"""A thousand job ends on a hundred nodes: is a decision lost, and what do our hooks ask of slurmctld for the good ones?

    python bench/job_ends.py                    # root; 100 slurmds on this machine, a few minutes

An array of tasks that ask for failover; one in a hundred loses its GPU. The controls are the same array without hooks,
and with them but without a fault: what that one costs, the ends cost that are well. What slurmctld was asked comes from
its own statistics (sdiag).
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import table

from slurm_ft import journal
from slurm_ft.errors import SlurmFtError
from slurm_ft.journal_entry import Stage
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.lab.spec import NO_HOOKS
from slurm_ft.model import Action

SCRIPT = """#!/bin/sh
[ FAULTY -gt 0 ] && [ "${SLURM_RESTART_COUNT:-0}" = 0 ] && [ $((SLURM_ARRAY_TASK_ID % FAULTY)) = 0 ] || exit 0
echo "$SLURMD_NODENAME" >"want.new.$SLURM_ARRAY_TASK_ID"
mv "want.new.$SLURM_ARRAY_TASK_ID" "want.$SLURM_ARRAY_TASK_ID"
until [ -e "go.$SLURM_ARRAY_TASK_ID" ]; do sleep 0.1; done
exit 1
"""
OF_OURS = (
    "REQUEST_JOB_INFO_SINGLE", "REQUEST_JOB_INFO", "REQUEST_NODE_INFO", "REQUEST_UPDATE_JOB", "REQUEST_JOB_REQUEUE",
    "REQUEST_UPDATE_NODE", "REQUEST_PARTITION_INFO",
)  # fmt: skip
TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True)
class Result:
    """One array: how long it took from its submission to its last end, and what slurmctld was asked meanwhile."""

    seconds: float
    rpcs: Mapping[str, int]


def rpcs(lab: Lab) -> dict[str, int]:
    """Requests by type since the last reset, as sdiag counts them."""
    counts = re.findall(r"^\s*(REQUEST_\w+)\s*\(\s*\d+\)\s*count:(\d+)", lab.run("sdiag"), re.MULTILINE)
    return {name: int(count) for name, count in counts}


def serve_faults(lab: Lab, served: set[Path]) -> None:
    """Take the GPU of each task that waits for it, and let the task end."""
    for want in set(lab.shared.glob("want.[0-9]*")) - served:
        lab.inject_xid(want.read_text().strip(), 0, 79, "GPU has fallen off the bus.")
        (lab.shared / want.name.replace("want", "go")).touch()
        served.add(want)


def run_array(lab: Lab, tasks: int, faulty: int) -> Result:
    """Submit and wait. Our own looks at the queue are one in two seconds, and are counted with the rest."""
    script = SCRIPT.replace("FAULTY", str(faulty))
    lab.run("sdiag", "-r")
    began, served = time.monotonic(), set[Path]()
    lab.sbatch(
        script, f"--array=0-{tasks - 1}", "--comment=[slurm_ft]", "--requeue", "--gres=gpu:1", "--output=/dev/null"
    )
    while lab.run("squeue", "-h", "--states=PD,R,CG,CF", "-o", "%i").strip():
        if time.monotonic() - began > TIMEOUT_S:
            raise SlurmFtError(f"the array did not end within {TIMEOUT_S:g} s", "Give the machine less to do besides")
        serve_faults(lab, served)
        time.sleep(2)
    return Result(time.monotonic() - began, rpcs(lab))


def failovers(lab: Lab) -> tuple[int, int]:
    """Failovers that were decided, and those of them that were carried out to the end."""
    entries = journal.entries(lab.base / "state" / "slurm_ft")
    decided = {
        one.key
        for one in entries
        if one.stage is Stage.DECIDED and one.decision and one.decision.action is Action.REQUEUE
    }
    done = {one.key for one in entries if one.stage in (Stage.RELEASED, Stage.CLOSED)}
    return len(decided), len(decided & done)


def measure(nodes: int, tasks: int, every: int) -> None:
    """All three arrays, then the table."""
    conf = ("MaxArraySize=10001", "MaxJobCount=20000")
    with Lab(LabSpec(nodes=nodes, gpus_per_node=1, slurm_conf=conf, hooks=NO_HOOKS)) as lab:
        control = run_array(lab, tasks, 0)
    with Lab(LabSpec(nodes=nodes, gpus_per_node=1, slurm_conf=conf)) as lab:
        well = run_array(lab, tasks, 0)
        ours = run_array(lab, tasks, every)
        decided, done = failovers(lab)
        version = lab.slurm.version
    faults = -(-tasks // every)
    table.show(
        f"{tasks} ends of array tasks on {nodes} nodes, {faults} of them with a hardware fault",
        ["", "without hooks", "slurm_ft, no fault", "slurm_ft"],
        [
            ["seconds", *(f"{one.seconds:.0f}" for one in (control, well, ours))],
            [
                "ends per minute",
                *(f"{tasks / one.seconds * 60:.0f}" for one in (control, well)),
                f"{(tasks + faults) / ours.seconds * 60:.0f}",
            ],
            *([name, *(str(one.rpcs.get(name, 0)) for one in (control, well, ours))] for name in OF_OURS),
        ],
    )
    print(
        f"\nfailovers: {faults} due, {decided} decided, {done} carried out: " + ("ok" if done == faults else "MISSED")
    )
    print(table.host(version))


def main() -> int:
    parser = argparse.ArgumentParser(
        description="A thousand job ends on a local Slurm cluster of a hundred nodes (root)."
    )
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--every", type=int, default=100, help="one task in so many loses its GPU (default: 100)")
    options = parser.parse_args()
    try:
        measure(options.nodes, options.tasks, options.every)
    except SlurmFtError as error:
        print(f"bench/job_ends.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

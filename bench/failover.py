"""From the end of a failed attempt to its restart on a healthy node: slurm_ft beside a plain `scontrol requeue`.

    python bench/failover.py            # root; about 2.5 minutes, since the control waits for 121 s
    python bench/failover.py --quick    # one control only

A local Slurm cluster runs jobs whose batch script loses its GPU (an Xid 79 in the kernel log) and ends with code 1.
The job itself writes both timestamps: at the end of its first attempt, and at the start of its second one. The control
is the same job without the tag, on the same cluster, requeued by an admin's `scontrol requeue` as soon as Slurm knows
of its end. A second cluster has Slurm's default scheduler settings, because the local cluster's are quick.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

import table

from slurm_ft.errors import SlurmFtError
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.slurm import fields

TARGET_S = 2.0
EXPEDITED_TARGET_S = 0.5
EXPEDITED = "expedited requeue"
SETTLE_S = 4.0  # an attempt lives longer than Slurm's batch_sched_delay of 3 s, unless that pause is to be measured
OURS_TIMEOUT_S = 100.0  # below 121 s: a job that waited for Slurm has not been released by us
CONTROL_TIMEOUT_S = 240.0
ALLOWED = "SlurmctldParameters=enable_expedited_requeue"
STOCK_SCHEDULER = "SchedulerParameters=nohold_on_prolog_fail"  # replaces the lab's line; no timing in it

SCRIPT = """#!/bin/sh
stamp() { echo "$1 $SLURMD_NODENAME $(date +%s.%N)" >>"$SLURM_JOB_ID.times"; }
stamp start
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0
until [ -e "$SLURM_JOB_ID.go" ]; do sleep 0.05; done
stamp end
exit 1
"""

# What happens between the two timestamps: name, the log that tells it (`node`: the failed node's), the line.
STAGES = (
    ("Slurm knows of the end", "slurmctld", r"_job_complete: JobId={job} WEXITSTATUS"),
    ("node epilog: judged", "slurm_ft", r"node_epilog INFO job {job} attempt 0 on "),
    ("node epilog: node drained", "slurm_ft", r"node_epilog INFO job {job}: drained"),
    ("node epilog: ended", "node", r"completed epilog for jobid {job}$"),
    ("controller: decided", "slurm_ft", r"slurmctld_epilog INFO job {job} attempt 0 decided"),
    ("controller: requeued, node excluded", "slurm_ft", r"slurmctld_epilog INFO job {job} attempt 0 done"),
    ("pending", "slurmctld", r"Requeuing JobId={job}$"),
    ("wait of 121 s removed", "slurmctld", r"setting begin to \S+ for JobId={job}$"),
    ("scheduled: configuring", "slurmctld", r"(?:Started|Allocate) JobId={job} "),
    ("node prolog ended", "slurmctld", r"Configuration for JobId={job} is complete"),
)
STAMP = re.compile(r"\[?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)[.,](\d{3})")


class RoundError(Exception):
    """A round did not do what it is there to measure."""


@dataclass(frozen=True, slots=True)
class Round:
    """One end and the restart after it; times are unix seconds."""

    job: int
    failed_node: str
    next_node: str
    ended: float
    restarted: float

    @property
    def seconds(self) -> float:
        """How long the job was without a running batch script."""
        return self.restarted - self.ended


def stamps(lab: Lab, job: int) -> list[tuple[str, str, float]]:
    """What the job wrote so far: `start` or `end`, the node, the time."""
    path = lab.shared / f"{job}.times"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(what, node, float(at)) for what, node, at in map(str.split, lines)]


def lose_gpu(lab: Lab, *options: str, settle_s: float = SETTLE_S) -> int:
    """Submit a job, let its GPU die under it, and return when its script has ended."""
    job = lab.sbatch(
        SCRIPT,
        *options,
        *(() if "--requeue=expedite" in options else ("--requeue",)),
        "--gres=gpu:1",
        "--open-mode=append",
    )
    lab.wait_for(lambda: stamps(lab, job), what=f"the start of job {job}")
    time.sleep(settle_s)
    lab.inject_xid(stamps(lab, job)[0][1], 0, 79, "GPU has fallen off the bus.")
    (lab.shared / f"{job}.go").touch()
    lab.wait_for(lambda: len(stamps(lab, job)) > 1, what=f"the end of job {job}")
    return job


def await_restart(lab: Lab, job: int, timeout_s: float) -> Round:
    """The round of a job whose first attempt has ended. Raises RoundError."""
    lab.wait_for(lambda: len(stamps(lab, job)) > 2, timeout_s, f"the restart of job {job}")
    (_, failed_node, _), (_, _, ended), (_, next_node, restarted) = stamps(lab, job)
    lab.wait_job(job, "COMPLETED")
    return Round(job, failed_node, next_node, ended, restarted)


def undrain(lab: Lab, node: str) -> None:
    lab.wait_node(node, "drained")
    lab.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    lab.wait_node(node, "idle")


def fail_over(lab: Lab, *options: str, settle_s: float = SETTLE_S) -> Round:
    """One failover by slurm_ft. Raises RoundError."""
    done = await_restart(lab, lose_gpu(lab, "--comment=[slurm_ft]", *options, settle_s=settle_s), OURS_TIMEOUT_S)
    if done.next_node == done.failed_node:
        raise RoundError(f"job {done.job} was restarted on the node that had failed, {done.failed_node}")
    undrain(lab, done.failed_node)
    return done


def begin_control(lab: Lab) -> tuple[int, str]:
    """End an attempt without the tag and requeue it plainly; returns the job and the state it was requeued in."""
    job = lose_gpu(lab)
    state = lab.wait_job(job, "COMPLETING", "FAILED")["state"]
    lab.run("scontrol", "requeue", str(job))
    undrain(lab, stamps(lab, job)[0][1])
    return job, state


def stages(lab: Lab, done: Round) -> dict[str, float]:
    """When each stage was reached, in seconds since the end of the failed attempt."""
    reached = {}
    for name, log, line in STAGES:
        wanted = re.compile(line.format(job=done.job))
        lines = lab.log_of(done.failed_node if log == "node" else log).splitlines()
        times = [clock(text) - done.ended for text in lines if wanted.search(text)]
        if after := [at for at in times if at > -0.001]:  # the logs cut off the microseconds
            reached[name] = min(after)
    return {**reached, "batch script runs": done.seconds}


def clock(line: str) -> float:
    """The unix time of a line of Slurm's logs or ours."""
    found = STAMP.match(line)
    return datetime.fromisoformat("{}T{}.{}".format(*found.groups())).timestamp() if found else float("-inf")


def median_round(rounds: Sequence[Round]) -> Round:
    return sorted(rounds, key=lambda done: done.seconds)[(len(rounds) - 1) // 2]


def result_row(name: str, rounds: Sequence[Round], control_s: float, *, judged: bool = True) -> list[str]:
    seconds = [done.seconds for done in rounds]
    median = statistics.median(seconds)
    numbers = [f"{value:.2f}" for value in (min(seconds), median, max(seconds))]
    limit = EXPEDITED_TARGET_S if EXPEDITED in name else TARGET_S
    target = [f"<= {limit:g}", table.verdict(median, limit)] if judged else ["", ""]
    return [name, str(len(rounds)), *numbers, f"{control_s / median:.0f}x", *target]


def stage_rows(columns: Sequence[dict[str, float]]) -> list[list[str]]:
    names = sorted({name for column in columns for name in column}, key=lambda name: columns[0].get(name, 0.0))
    return [[name, *(f"{column[name] * 1000:.0f}" if name in column else "-" for column in columns)] for name in names]


def measure(rounds: int, controls: int) -> None:
    """Run everything and print it. The controls wait while our rounds run."""
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(LabSpec(nodes=max(3, controls + 1), gpus_per_node=1)))
        stock = stack.enter_context(Lab(LabSpec(gpus_per_node=1, slurm_conf=(STOCK_SCHEDULER,))))
        waiting = [begin_control(lab) for _ in range(controls)]
        quick = [fail_over(lab) for _ in range(rounds)]
        slow = [fail_over(stock) for _ in range(rounds)]
        paused = [fail_over(stock, settle_s=0) for _ in range(rounds)]
        plain = [await_restart(lab, job, CONTROL_TIMEOUT_S) for job, _ in waiting]
        ours = {"local cluster's scheduler": quick, "Slurm's default scheduler": slow, "the same, in its pause": paused}
        places = [lab, stock, stock]
        if fields.EXPEDITED.on(lab.slurm.version):
            places.append(stack.enter_context(Lab(LabSpec(gpus_per_node=1, slurm_conf=(STOCK_SCHEDULER, ALLOWED)))))
            ours[EXPEDITED] = [fail_over(places[-1], "--requeue=expedite") for _ in range(rounds)]
        print_results(ours, plain, [state for _, state in waiting])
        columns = [stages(on, median_round(done)) for on, done in zip(places, ours.values(), strict=True)]
        title = "Where the time goes: the median round, in ms since the end"
        table.show(title, ["reached", *ours], stage_rows(columns))
        print(f"\n{table.host(lab.slurm.version)}")


def print_results(ours: Mapping[str, Sequence[Round]], plain: Sequence[Round], states: Sequence[str]) -> None:
    control_s = statistics.median(done.seconds for done in plain)
    rows = [result_row(f"slurm_ft, {name}", rounds, control_s) for name, rounds in ours.items()]
    rows.append(result_row("control: scontrol requeue", plain, control_s, judged=False))
    header = ["", "rounds", "min", "median", "max", "faster", "target", ""]
    table.show("End of the failed attempt -> running again on a healthy node, in seconds", header, rows)
    counts = ", ".join(f"{states.count(state)} while {state}" for state in sorted(set(states)))
    print(
        f"\nThe control had no tag; it was requeued by a plain `scontrol requeue JOB` ({counts}), which Slurm accepted."
    )
    print("Pause: Slurm's scheduler had run less than 3 s (its batch_sched_delay) before the end of the attempt.")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure a failover end to end on a local Slurm cluster (root).")
    parser.add_argument("--rounds", type=int, default=5, help="failovers in each setting (default: 5)")
    parser.add_argument("--quick", action="store_true", help="one control instead of one for each round")
    options = parser.parse_args()
    try:
        measure(max(options.rounds, 1), 1 if options.quick else max(options.rounds, 1))
    except (SlurmFtError, RoundError) as error:
        print(f"bench/failover.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

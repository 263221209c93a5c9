"""What the tests do with a job: submit it, wait for an attempt, end it, take its GPU away, ask for its status."""

from __future__ import annotations

import pwd
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from slurm_ft import config, journal
from slurm_ft.errors import SlurmCommandError
from slurm_ft.journal_entry import Stage, to_json
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.status import render, view

if TYPE_CHECKING:
    from slurm_ft.lab import Lab

OPTED_IN = ("--comment=[slurm_ft]", "--requeue", "--gres=gpu:1", "--open-mode=append", "--output=%j.log")
FELL_OFF = "GPU has fallen off the bus."
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")

# Each attempt writes its node to started.JOB and waits for end.JOB.RESTART to say with which exit code to end.
ATTEMPT = """#!/bin/bash
restart=${SLURM_RESTART_COUNT:-0}
echo "attempt $restart on $SLURMD_NODENAME"
echo "$restart $SLURMD_NODENAME" >> started.$SLURM_JOB_ID
for _ in $(seq 600); do
    if [ -s end.$SLURM_JOB_ID.$restart ]; then exit "$(cat end.$SLURM_JOB_ID.$restart)"; fi
    sleep 0.1
done
exit 99
"""


def submit(lab: Lab, *options: str) -> int:
    return lab.sbatch(ATTEMPT, *options)


def running(lab: Lab, job: int, restart: int) -> str:
    """Wait until this attempt runs; returns its node."""
    note = lab.shared / f"started.{job}"

    def nodes() -> list[str]:
        lines = note.read_text().splitlines() if note.exists() else []
        return [line.split()[1] for line in lines if line.split()[0] == str(restart)]

    lab.wait_for(nodes, 30, f"job {job} running after restart {restart}")
    return nodes()[0]


def running_at_once(lab: Lab, job: int, restart: int) -> str:
    """As `running`, without Slurm's own wait of two minutes after a requeue.

    Asked for again and again: on a busy machine Slurm may set the begin time once more after the job was seen PENDING.
    """
    note = lab.shared / f"started.{job}"

    def runs() -> bool:
        if lab.job(job)["state"] == "PENDING":
            with suppress(SlurmCommandError):
                lab.run("scontrol", "update", f"JobId={job}", "StartTime=now")
            time.sleep(1)
        return note.exists() and any(line.split()[0] == str(restart) for line in note.read_text().splitlines())

    lab.wait_for(runs, 60, f"job {job} running after restart {restart}")
    return running(lab, job, restart)


def end(lab: Lab, job: int, restart: int, code: int) -> None:
    (lab.shared / f"end.{job}.{restart}").write_text(f"{code}\n")


def status(lab: Lab, job: int) -> view.JobView:
    slurm = CommandLine.of(settings(lab))
    return view.views(slurm.jobs((f"--jobs={job}",)), slurm.nodes(), settings(lab))[0]


def rows(one: view.JobView) -> list[str]:
    """The header and the job's row of `slurm-ft status`, as a pipe gets them."""
    return list(render.table([one], time.time()).lines)


def settings(lab: Lab) -> config.Config:
    path = lab.base / "etc" / "slurm_ft.yaml"
    return config.parse(path.read_text(), str(path))


def decisions(lab: Lab, job: int) -> list[dict[str, Any]]:
    return entries(lab, job, Stage.DECIDED)


def entries(lab: Lab, job: int, *stages: Stage) -> list[dict[str, Any]]:
    """What the journal says of a job, as JSON."""
    found = journal.entries(settings(lab).state_dir, job)
    return [to_json(entry) for entry in found if not stages or entry.stage in stages]


def reconcile(lab: Lab) -> str:
    """Run `slurm-ft reconcile`; returns what it said."""
    return lab.run(str(lab.command), "reconcile", env={"SLURM_FT_CONFIG": str(lab.layout.config)})


def cancel_all(lab: Lab) -> None:
    """All jobs of the lab's user, by uid: not every release knows `nobody` by name (fields.KNOWS_NOBODY)."""
    lab.run("scancel", f"--user={pwd.getpwnam(lab.spec.user).pw_uid}")


def lose_gpu(lab: Lab, job: int, restart: int, code: int = 1) -> str:
    """The attempt loses its GPU and dies of it; returns its node."""
    node = running(lab, job, restart)
    lab.inject_xid(node, 0, 79, FELL_OFF)
    end(lab, job, restart, code)
    return node


def make_healthy(lab: Lab) -> None:
    """End all jobs and return all nodes to service."""
    cancel_all(lab)
    # A cancelled job's epilog may still drain its node: only when all have ended is the last word spoken.
    lab.wait_for(lambda: not lab.run("squeue", "-h", "--states=R,CG,CF,PD"), 30, "the end of all jobs")
    for node in lab.nodes:
        lab.run("scontrol", "update", f"NodeName={node}", "Comment=")
        if lab.node(node)[0].startswith(("drain", "down")):
            lab.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        lab.wait_for(partial(idle, lab, node), 60, f"node {node} being idle")


def idle(lab: Lab, node: str) -> bool:
    """Asked of scontrol: sinfo 22.05 may show a node `mixed` after its last job, until something about it changes."""
    return " State=IDLE " in lab.run("scontrol", "-o", "show", "node", node)

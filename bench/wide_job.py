"""A failover of a job on five hundred nodes, on a real cluster: how long the decision takes.

    python bench/wide_job.py [--nodes 500]      # root; a slurmd for each node, about 3 GB and a few minutes

One node loses its GPU. The others' epilogs end at once (on a site each has a machine of its own, here all share one),
so what is left between the hook's first entry in the journal and its decision is the hook's own: asking Slurm for the
job and its nodes, reading what they left, deciding. One node is left over for the next attempt.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import table

from slurm_ft import journal
from slurm_ft.errors import SlurmFtError
from slurm_ft.journal_entry import Entry, Stage
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.lab.resources import resource

TARGET_S = 2.0
TIMEOUT_S = 600.0
SCRIPT = """#!/bin/sh
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0
echo "$SLURMD_NODENAME" >wide.node
until [ -e wide.go ]; do sleep 0.1; done
exit 1
"""


def epilog(directory: Path, bad: str) -> Path:
    """Ours on the node that fails; on the others nothing is to be found, and nothing is looked for."""
    script = directory / "epilog"
    script.write_text(f'#!/bin/sh\n[ "$SLURMD_NODENAME" = {bad} ] || exit 0\nexec {resource("epilog/node_epilog")}\n')
    script.chmod(0o755)
    directory.chmod(0o755)
    return script


def entry(lab: Lab, job: int, stage: Stage) -> Entry | None:
    return next((one for one in journal.entries(lab.base / "state" / "slurm_ft", job) if one.stage is stage), None)


def measure(nodes: int) -> list[list[str]]:
    with tempfile.TemporaryDirectory(prefix="slurm_ft-bench-", dir="/tmp") as name:
        spec = LabSpec(nodes=nodes + 1, gpus_per_node=1, cpus_per_node=1, hooks={"epilog": epilog(Path(name), "n1")})
        with Lab(spec) as lab:
            job = lab.sbatch(SCRIPT, "--comment=[slurm_ft]", "--requeue", "--gres=gpu:1", f"--nodes={nodes}")
            lab.wait_for((lab.shared / "wide.node").exists, TIMEOUT_S, "the job running")
            lab.inject_xid("n1", 0, 79, "GPU has fallen off the bus.")
            (lab.shared / "wide.go").touch()
            lab.wait_for(lambda: entry(lab, job, Stage.RECORDED), TIMEOUT_S, "the failover recorded")
            lab.wait_job(job, "COMPLETED", timeout_s=TIMEOUT_S)
            return _rows(lab, job, nodes)


def _rows(lab: Lab, job: int, nodes: int) -> list[list[str]]:
    seen, decided, recorded = (entry(lab, job, stage) for stage in (Stage.SEEN, Stage.DECIDED, Stage.RECORDED))
    if not (seen and decided and recorded and decided.decision and decided.decision.exclude == ("n1",)):
        raise SlurmFtError("the journal holds no failover without n1", "Look at the lab's log with --keep")
    took, acted = decided.at - seen.at, recorded.at - decided.at
    return [
        [f"decided, {nodes} nodes", f"{took:.2f}", f"<= {TARGET_S:g}", table.verdict(took, TARGET_S)],
        ["requeued, excluded, counted", f"{acted:.2f}", "-", ""],
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    try:
        rows = measure(parser.parse_args().nodes)
    except SlurmFtError as error:
        print(f"bench/wide_job.py: {error}", file=sys.stderr)
        return 1
    table.show("A job on many nodes, seconds from the hook's first entry in the journal", ["", "s", "target", ""], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A job over its memory limit: the kernel ends it, Slurm says OUT_OF_MEMORY, and nothing is retried or drained."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from steps import ENDED, OPTED_IN, decisions, status

from slurm_ft.lab import Lab, LabSpec
from slurm_ft.model import JobState

if TYPE_CHECKING:
    from collections.abc import Iterator

CGROUPS = Path("/sys/fs/cgroup")
SLURM_CONF = ("ProctrackType=proctrack/cgroup", "TaskPlugin=task/cgroup", "SelectTypeParameters=CR_Core_Memory")
GREEDY = '#!/bin/sh\nexec python3 -c "import time; taken = bytearray(300 << 20); time.sleep(60)"\n'

pytestmark = pytest.mark.skipif(
    not os.access(CGROUPS / "memory" / "cgroup.procs", os.W_OK),
    reason=f"no memory controller of cgroup v1 in {CGROUPS} that can be written",
)


@pytest.fixture
def lab() -> Iterator[Lab]:
    spec = LabSpec(nodes=2, slurm_conf=SLURM_CONF, cgroup_conf=("ConstrainRAMSpace=yes",))
    with Lab(spec) as cluster:
        yield cluster
    for node in cluster.nodes:  # what slurmd leaves behind
        for group in sorted(CGROUPS.glob(f"*/slurm_{node}/**/"), reverse=True):
            with suppress(OSError):
                group.rmdir()


def test_a_job_over_its_memory_limit_is_an_error_of_its_own(lab: Lab) -> None:
    job = lab.sbatch(GREEDY, *OPTED_IN, "--mem=50M")
    done = lab.wait_job(job, "OUT_OF_MEMORY", *ENDED)
    assert (done["state"], done["restarts"], done["comment"]) == ("OUT_OF_MEMORY", "0", "[slurm_ft]")
    lab.wait_for(lambda: decisions(lab, job), 30, "the decision")
    assert decisions(lab, job)[0]["action"] == "none"
    assert status(lab, job).state is JobState.INTERNAL_ERROR
    assert not any(lab.node(node)[0].startswith("drain") for node in lab.nodes)

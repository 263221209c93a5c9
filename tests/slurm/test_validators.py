"""The validator beside the training, on each node of a job."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from steps import ENDED

import slurm_ft

if TYPE_CHECKING:
    from slurm_ft.lab import Lab

SCRIPT = Path(__file__).parent / "training" / "two_nodes.py"
# Nodes of a real cluster have a /tmp each. The lab's share this machine's: another path stands for the second node's.
OTHER_TMP = 'if [ "$SLURM_NODEID" = 1 ]; then SLURM_FT_VALIDATOR_SOCKET=${SLURM_FT_VALIDATOR_SOCKET%/*}.other/s; fi; '


@pytest.mark.timeout(300)
def test_each_node_has_one_and_that_of_rank_zeros_node_validates(lab: Lab) -> None:
    directory = lab.shared / f"validators{len(list(lab.shared.iterdir()))}"
    directory.mkdir()
    shutil.copy(SCRIPT, directory)
    (directory / "out").mkdir()
    for path in (directory, directory / "out"):
        shutil.chown(path, lab.spec.user)
    train = f"{OTHER_TMP}exec python {directory}/two_nodes.py {directory}/out 15"
    words = shlex.join(
        [str(lab.command), "run", f"--output-dir={directory}/out", "--", "srun", "--export=ALL", "sh", "-c", train]
    )
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{lab.environment()['PATH']}",
        "CHECKPOINT_VENDOR": str(Path(slurm_ft.__file__).parent / "vendor"),
        "SLURM_FT_CONFIG": str(lab.layout.config),
        "OMP_NUM_THREADS": "1",
    }
    options = ("--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1", f"--output={directory}/job.log")
    job = lab.sbatch(f"#!/bin/bash\nexec {words}\n", *options, env=environ)
    done = lab.wait_job(job, *ENDED)
    log = (directory / "job.log").read_text()
    print(log)
    assert done["state"] == "COMPLETED"
    sockets = re.findall(r"^waiting for validator through (\S+)\.\.\.$", log, re.MULTILINE)
    assert len(sockets) == 2
    assert sockets[1] == sockets[0].removesuffix("/stage.socket") + ".other/s"
    assert log.count("validator is running....") == 2
    assert log.count("sidecar container is running and ready for training process to run!") == 2
    for step in (5, 10, 15):
        record = json.loads((directory / "out" / f"checkpoint-{step}" / "VALIDATION.json").read_text())
        assert record["validated"], record
    lab.wait_for(lambda: not any(Path(path).exists() for path in sockets), 30, "the validators' end with the training")

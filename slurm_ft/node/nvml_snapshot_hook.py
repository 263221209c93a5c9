"""`slurm-ft hook nvml-snapshot`: what NVML says when an attempt begins. The node Prolog starts it in the background and
does not wait: a job's start must not depend on NVML.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from slurm_ft.config import Config
from slurm_ft.node import attempt_file
from slurm_ft.sensors import nvml, nvml_snapshot
from slurm_ft.sensors.gpu_inventory import gpus_of_job
from slurm_ft.slurm import environment

NO_NVML = "no_nvml"  # a file in the run directory; while it is there the node Prolog does not start this hook


def wanted(run_dir: Path, config: Config) -> bool:
    """Whether NVML is to be asked and can be; leaves the answer for the Prologs to come. The epilog of a failed job
    asks too, so that NVML counts from then on when it was installed or switched on since the boot."""
    found = config.nvml and nvml.installed()
    with contextlib.suppress(OSError):  # the answer only saves the next ones some work
        if found:
            (run_dir / NO_NVML).unlink(missing_ok=True)
        else:
            (run_dir / NO_NVML).touch()
    return found


def run(environ: Mapping[str, str], config: Config) -> int:
    """Write the snapshot of the job's GPUs, unless the job is over by then."""
    directory = attempt_file.run_dir(environ)
    if not wanted(directory, config):
        return 0
    key, node = environment.job_key(environ), environment.node_name(environ)
    configured = config.gpu_inventory.get(node, ())
    gpus = gpus_of_job(environ.get(environment.GPUS, ""), configured=configured, cache=directory / "gpus")
    if not gpus:
        return 0
    reading = nvml.take_reading(gpus, config.nvml_timeout)
    if reading.started and attempt_file.exists(directory, node, key.raw_id):
        nvml_snapshot.write(nvml_snapshot.path_of(directory, node, key.raw_id), key.attempt, reading)
    return 0

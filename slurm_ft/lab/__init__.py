"""A real Slurm cluster on one machine: munged, slurmctld and N slurmds, for the demo, the tests and the curious.

    with Lab(LabSpec(nodes=3)) as lab:
        job = lab.sbatch("#!/bin/sh\nhostname\n", "--gres=gpu:1")
        lab.wait_job(job, "COMPLETED")

It needs root (slurmd starts jobs as other users) and an installed Slurm, and it touches nothing outside of its own
directory except a pointer to it in /run.
"""

from slurm_ft.lab.cluster import Lab
from slurm_ft.lab.errors import LabError
from slurm_ft.lab.spec import NO_HOOKS, LabSpec

__all__ = ["NO_HOOKS", "Lab", "LabError", "LabSpec"]

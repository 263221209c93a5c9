"""The variables that Slurm gives its hooks, in one table, and what they say.

Measured on 22.05: EpilogSlurmctld has SLURM_JOB_COMMENT live, the node hooks have a copy from the launch; SLURM_CONF is
set for the node hooks only; none of them has a PATH. What differs between the releases is in fields.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurm_ft.errors import HookEnvironmentError
from slurm_ft.model import ExitStatus, JobKey
from slurm_ft.slurm import fields

JOB_ID = "SLURM_JOB_ID"
ARRAY_JOB_ID = "SLURM_ARRAY_JOB_ID"
ARRAY_TASK_ID = "SLURM_ARRAY_TASK_ID"
RESTART_COUNT = "SLURM_JOB_RESTART_COUNT"  # in the hooks
JOB_RESTARTS = "SLURM_RESTART_COUNT"  # the same, in the job's own environment, from the first restart on
EXIT_CODE = "SLURM_JOB_EXIT_CODE2"  # code:signal; absent if the controller sent none
DERIVED_EXIT = "SLURM_JOB_DERIVED_EC"  # the worst of the steps, as `squeue -O exit_code` writes it
COMMENT = "SLURM_JOB_COMMENT"
NODELIST = "SLURM_JOB_NODELIST"
STEP_ID = "SLURM_STEP_ID"  # in the tasks that srun starts; not in a batch script
STEP_TASKS = "SLURM_STEP_NUM_TASKS"
TASK_NUMBER = "SLURM_PROCID"  # also in a batch script: 0
CLUSTER = "SLURM_CLUSTER_NAME"
HET_NODELIST = "SLURM_HET_JOB_NODELIST"  # of all components; the leader's controller hooks have it
NODE_NAME = "SLURMD_NODENAME"
GPUS = "SLURM_JOB_GPUS"  # GRES indices, not NVML's

# What EpilogSlurmctld needs of its environment: kept in the journal, so that a killed hook's work can be done later.
TOLD = (JOB_ID, ARRAY_JOB_ID, ARRAY_TASK_ID, RESTART_COUNT, EXIT_CODE, NODELIST, HET_NODELIST, DERIVED_EXIT)


def job_key(environ: Mapping[str, str]) -> JobKey:
    """Which attempt of which job a hook runs for. Raises HookEnvironmentError."""
    raw_id = _number(environ, JOB_ID)
    array, task = environ.get(ARRAY_JOB_ID), environ.get(ARRAY_TASK_ID)
    address = f"{array}_{task}" if array and task else str(raw_id)
    return JobKey(raw_id, address, _number(environ, RESTART_COUNT, default="0"))


def restart_of(environ: Mapping[str, str]) -> int:
    """How often Slurm has restarted the job in whose own environment we are; it sets the count from the first on."""
    count = environ.get(JOB_RESTARTS, "")
    return int(count) if count.isascii() and count.isdigit() else 0


def first_task(environ: Mapping[str, str]) -> bool:
    """Whether this is the batch script, or the first task of a step, or no job."""
    return environ.get(TASK_NUMBER, "0") == "0"


def tasks_of_step(environ: Mapping[str, str]) -> int:
    """How many tasks the step has in which we are; 0 in the batch script and outside of a job."""
    count = environ.get(STEP_TASKS, "")
    return int(count) if STEP_ID in environ and count.isascii() and count.isdigit() else 0


def exit_status(environ: Mapping[str, str]) -> ExitStatus:
    """How the batch script ended; absent reads as `0:0`, as the hooks' shell part does."""
    text = environ.get(EXIT_CODE) or "0:0"
    try:
        return ExitStatus.parse(text)
    except ValueError:
        raise _bad(EXIT_CODE, text, "code:signal") from None


def nodes(environ: Mapping[str, str]) -> str:
    """The nodelist of a job as the controller's hooks know it; for the leader of a het job, of all its components."""
    return environ.get(HET_NODELIST) or environ.get(NODELIST, "")


def failed_step(environ: Mapping[str, str]) -> ExitStatus | None:
    """The worst end of the job's steps; None if all ended well, or if Slurm does not say."""
    try:
        worst = ExitStatus(*fields.exit_status(environ.get(DERIVED_EXIT) or "0"))
    except ValueError:
        return None
    return None if worst.success else worst


def node_name(environ: Mapping[str, str]) -> str:
    """The Slurm name of the node a node hook runs on."""
    name = environ.get(NODE_NAME, "")
    if not name:
        raise _bad(NODE_NAME, name, "a node name")
    return name


def _number(environ: Mapping[str, str], variable: str, default: str = "") -> int:
    text = environ.get(variable, default)
    if not (text.isascii() and text.isdigit()):
        raise _bad(variable, text, "a number")
    return int(text)


def _bad(variable: str, text: str, expected: str) -> HookEnvironmentError:
    return HookEnvironmentError(
        f"{variable} is {text!r}, expected {expected}", "Start this through Slurm's hooks, not by hand"
    )

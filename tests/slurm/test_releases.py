"""The table of slurm_ft/slurm/fields.py, row by row, on the Slurm that is here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_ft.errors import SlurmCommandError
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.lab.spec import HOOKS
from slurm_ft.slurm import fields
from slurm_ft.slurm.cli import CommandLine

if TYPE_CHECKING:
    from collections.abc import Iterator

# Under its last name only once it is whole.
DUMP = """#!/bin/sh
dump=$SLURM_FT_RUN_DIR/$SLURM_SCRIPT_CONTEXT.$SLURM_JOB_ID
/usr/bin/env >"$dump.new"
/bin/mv "$dump.new" "$dump"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Its hooks only write down their environment; the TaskProlog runs as the user, who cannot reach the script."""
    hook = tmp_path_factory.mktemp("hook") / "dump"
    hook.write_text(DUMP)
    hook.chmod(0o755)
    hooks = {**dict.fromkeys(HOOKS, hook), "task_prolog": None}
    with Lab(LabSpec(nodes=2, gpus_per_node=0, hooks=hooks)) as lab:
        yield lab


def seen(lab: Lab, hook: str, job: int) -> dict[str, str]:
    """The environment of the hook that Slurm calls `epilog_slurmctld` or `epilog_slurmd`, of the job's end."""
    dump = lab.base / "run" / "slurm_ft" / f"{hook}.{job}"
    lab.wait_for(dump.exists, 30, f"{hook} of job {job}")
    pairs = (line.partition("=") for line in dump.read_text().splitlines())
    return {name: value for name, _, value in pairs}


def ended(lab: Lab, script: str) -> tuple[int, dict[str, str]]:
    job = lab.sbatch(f"#!/bin/sh\n{script}\n")
    return job, lab.wait_job(job, "FAILED", "COMPLETED")


def test_the_exit_code(cluster: Lab) -> None:
    job, record = ended(cluster, "exit 3")
    assert record["exit_code"] == fields.EXIT_CODE.on(cluster.slurm.version)
    assert record["reason"] == "NonZeroExitCode"
    assert seen(cluster, "epilog_slurmctld", job)["SLURM_JOB_EXIT_CODE2"] == "3:0"
    assert seen(cluster, "epilog_slurmd", job)["SLURM_JOB_EXIT_CODE2"] == "3:0"


def test_the_reason_of_a_killed_script(cluster: Lab) -> None:
    job, record = ended(cluster, "kill -9 $$")
    assert record["reason"] == fields.SIGNAL_REASON.on(cluster.slurm.version)
    assert fields.exit_status(record["exit_code"]) == (0, 9)
    assert seen(cluster, "epilog_slurmctld", job)["SLURM_JOB_EXIT_CODE2"] == "0:9"


def test_the_place_of_the_output(cluster: Lab) -> None:
    job, _ = ended(cluster, "true")
    record = CommandLine(cluster.slurm.bin, cluster.slurm_conf).job(str(job))
    assert record is not None
    expected = fields.STDOUT.on(cluster.slurm.version)
    assert record.stdout == expected.replace("/home/a", str(cluster.shared)).replace("-7.", f"-{job}.")


def test_the_place_of_the_output_of_an_arrays_task(cluster: Lab) -> None:
    job = cluster.sbatch("#!/bin/sh\n", "--array=2-3")
    cluster.wait_job(f"{job}_2", "COMPLETED")
    (streams,) = CommandLine(cluster.slurm.bin, cluster.slurm_conf).streams(f"{job}_2")
    expected = fields.ARRAY_STDOUT.on(cluster.slurm.version).replace("-8.", f"-{streams.raw_id}.")
    assert streams.stdout.rpartition("/")[2] == expected


def test_the_number_of_a_batch_scripts_step(cluster: Lab) -> None:
    ended(cluster, 'echo "${SLURM_STEP_ID:-}" > step_of_batch')
    assert (cluster.shared / "step_of_batch").read_text().strip() == fields.BATCH_STEP.on(cluster.slurm.version)


def test_a_backslash_before_a_blank_in_a_line_of_options(cluster: Lab) -> None:
    try:
        cluster.sbatch("#!/bin/sh\n#SBATCH --comment=a\\ b\n", "--output=/dev/null")
        accepted = True
    except SlurmCommandError:
        accepted = False
    assert accepted == fields.ESCAPED_BLANK.on(cluster.slurm.version)


def test_the_environment_of_the_hooks(cluster: Lab) -> None:
    job, _ = ended(cluster, "true")
    version = cluster.slurm.version
    controller, node = seen(cluster, "epilog_slurmctld", job), seen(cluster, "epilog_slurmd", job)
    for environment in (controller, node):
        assert ("SLURM_JOB_START_TIME" in environment) == fields.HOOK_TIMES.on(version)
        assert ("SLURM_JOB_END_TIME" in environment) == fields.HOOK_TIMES.on(version)
        assert ("SLURM_JOB_SLUID" in environment) == fields.ATTEMPT_ID.on(version)
        assert environment["SLURM_JOB_RESTART_COUNT"] == "0"
    assert ("SLURM_JOB_NODELIST" in node) == fields.NODE_HOOK_NODELIST.on(version)
    assert node["SLURM_NODELIST"] == node["SLURMD_NODENAME"]


def test_the_exit_code_after_a_node_failure(cluster: Lab) -> None:
    job = cluster.sbatch("#!/bin/sh\nsleep 600\n", "--nodelist=n2", "--requeue")
    cluster.wait_job(job, "RUNNING")
    cluster.run("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=power")
    environment = seen(cluster, "epilog_slurmctld", job)
    assert environment["SLURM_JOB_EXIT_CODE2"] == fields.NODE_FAILURE_EXIT.on(cluster.slurm.version)
    assert environment["SLURM_JOB_RESTART_COUNT"] == "0"
    cluster.run("scancel", str(job))
    cluster.run("scontrol", "update", "NodeName=n2", "State=RESUME")
    cluster.wait_node("n2", "idle")


def test_the_reason_of_a_node_that_was_resumed(cluster: Lab) -> None:
    cluster.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=fan broken")
    cluster.run("scontrol", "update", "NodeName=n1", "State=RESUME")
    kept = "fan broken" if fields.RESUME_KEEPS_REASON.on(cluster.slurm.version) else ""
    assert cluster.wait_node("n1", "idle")[1] == kept
    job = cluster.sbatch("#!/bin/sh\n", "--nodelist=n1")
    cluster.wait_job(job, "COMPLETED")
    assert cluster.wait_node("n1", "idle")[1] == ""


def test_the_account_nobody_by_its_name(cluster: Lab) -> None:
    job = cluster.sbatch("#!/bin/sh\nsleep 600\n")
    cluster.wait_job(job, "RUNNING")
    assert bool(cluster.run("squeue", "--noheader", "--user=nobody")) == fields.KNOWS_NOBODY.on(cluster.slurm.version)
    assert cluster.run("squeue", "--noheader", "--user=65534", "-o", "%u").strip() == "nobody"
    cluster.run("scancel", str(job))

"""Ask the sensors of this node about an ended attempt. Nothing here judges or acts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from slurm_ft.classify import classify
from slurm_ft.config import Config
from slurm_ft.model import Domain, Evidence, ExitStatus, JobKey
from slurm_ft.node import attempt_file, event_file
from slurm_ft.node.array_task import with_task_numbers
from slurm_ft.node.attempt_file import AttemptStart
from slurm_ft.node.gpu_sensors import GPU_SENSORS, Question
from slurm_ft.sensors.gpu_inventory import gpus_of_job
from slurm_ft.sensors.job_output import NO_FILE, read_job_output
from slurm_ft.sensors.kernel_log import Window, read_kernel_log, running_boot
from slurm_ft.sensors.output_path import may_be_of_an_array
from slurm_ft.slurm import environment

KMSG = Path("/dev/kmsg")
JOURNALCTL = Path("/usr/bin/journalctl")


def observe(environ: Mapping[str, str], config: Config, key: JobKey, node: str) -> tuple[Evidence, ...]:
    """Ask the kernel log about the attempt on this node, and the other sensors if it leaves the question open."""
    directory = attempt_file.run_dir(environ)
    start = attempt_file.read(directory, node, key.raw_id)
    gpus = gpus_of_job(
        environ.get(environment.GPUS, ""), configured=config.gpu_inventory.get(node, ()), cache=directory / "gpus"
    )
    window = Window(
        marker=start.marker,
        start=start.uptime,
        end=None,
        grace=config.kernel_log_grace,
        boot_id=start.boot_id,
        since=start.since,
    )
    journal = JOURNALCTL if config.kernel_log == KMSG else None
    kernel = read_kernel_log(config.kernel_log, window, gpus, journal=journal)
    evidence = (kernel, *_recorded(kernel, config, key, node))
    exit_status = environment.exit_status(environ)
    if exit_status.success:
        return evidence
    explained = classify(evidence, exit_status).rule == "ambiguous_code"
    evidence += (_job_output(environ, config, key),)
    if not gpus:
        return evidence
    question = Question(gpus, key, node, directory, _seconds_since(start), explained)
    return _ask_until_decided(evidence, exit_status, config, question)


def _job_output(environ: Mapping[str, str], config: Config, key: JobKey) -> Evidence:
    """The job's own output. Where it is missing, the file may be named by the numbers of an array's task."""
    output = read_job_output(environ, key.attempt)
    if output.detail != NO_FILE or not may_be_of_an_array(environ):
        return output
    task = with_task_numbers(environ, config, key)
    return output if task is None else read_job_output(task, key.attempt)


def _ask_until_decided(
    evidence: tuple[Evidence, ...], exit_status: ExitStatus, config: Config, question: Question
) -> tuple[Evidence, ...]:
    """Ask one GPU sensor after the other; none once the hardware is convicted. NVML hangs after some faults."""
    for sensor in GPU_SENSORS:
        if classify(evidence, exit_status).domain is Domain.HARDWARE:
            break
        found = sensor(config, question)
        evidence += () if found is None else (found,)
    return evidence


def _seconds_since(start: AttemptStart) -> float | None:
    """How long ago the attempt began."""
    began = start.uptime if start.since is None else start.since
    return None if began is None else time.clock_gettime(time.CLOCK_BOOTTIME) - began


def _recorded(kernel: Evidence, config: Config, key: JobKey, node: str) -> tuple[Evidence, ...]:
    """What the watcher recorded of the attempt and the kernel log does not show: lost lines, a boot that has ended."""
    whole = kernel.readable and not kernel.detail
    boot_time = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    path, attempt = event_file.path_of(config.state_dir, node), f"{key.raw_id}.{key.attempt}"
    recorded = event_file.evidence_of(path, attempt, running_boot(), boot_time, live_only=whole)
    return () if recorded is None else (recorded,)

"""Whether this node's sensors can see: the kernel log, the list of GPUs, NVML in its child process, DCGM."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurm_ft.config import Config
from slurm_ft.doctor.cluster import Cluster, Machine
from slurm_ft.doctor.finding import Finding, Stage, fail, ok, warning
from slurm_ft.model import Evidence
from slurm_ft.node import attempt_file
from slurm_ft.node.check import NVML_S
from slurm_ft.node.observe import JOURNALCTL, KMSG
from slurm_ft.sensors import dcgm, nvml
from slurm_ft.sensors.gpu_inventory import PROC_ROOT, gpus_of_node
from slurm_ft.sensors.kernel_log import Window, read_kernel_log

STAGE = Stage.SENSORS
SILENT = ("nvml_hang", "nvml_timeout")  # events of nvml_events.hang


@dataclass(frozen=True, slots=True)
class Look:
    """What a sensor answered, and in how many seconds."""

    evidence: Evidence
    took_s: float


def check_sensors(cluster: Cluster | None, config: Config, machine: Machine) -> Iterator[Finding]:
    """For a compute node. What the sensors find is not judged here: `slurm-ft check-node` does that."""
    gpus = gpus_of_node(config.gpu_inventory.get(machine.node, ()), attempt_file.run_dir() / "gpus")
    yield judge_kernel_log(look_at_kernel_log(config.kernel_log, gpus), config.kernel_log)
    yield judge_inventory(gpus, _gres(cluster, machine.node), machine.node)
    yield _nvml(config, gpus)
    yield _dcgm(config, gpus)


def look_at_kernel_log(path: Path, gpus: frozenset[str]) -> Look:
    """Write a mark as the Prolog does, and read the log back from it as the Epilog does."""
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    marker: str | None = f"slurm_ft: start job=0.0 node=doctor id={uptime:.2f}-{os.getpid()}"
    try:
        if path == KMSG:
            with path.open("wb", buffering=0) as log:
                log.write(f"{marker}\n".encode())
    except OSError:
        marker = None
    began = time.perf_counter()
    window = Window(marker if path == KMSG else None, uptime, None, 0.0, None)
    evidence = read_kernel_log(path, window, gpus, journal=JOURNALCTL if path == KMSG else None)
    return Look(evidence, time.perf_counter() - began)


def judge_kernel_log(look: Look, path: Path) -> Finding:
    """A log without the mark that was just written is none that could convict anybody."""
    evidence, ms = look.evidence, look.took_s * 1000
    if not evidence.readable:
        fix = "Run as root; a container needs --privileged for it"
        return fail(STAGE, f"the kernel log cannot be read: {evidence.detail}", fix)
    if evidence.detail:
        return warning(
            STAGE, f"the kernel log was read in {ms:.0f} ms, but {evidence.detail}", f"Can root write to {path}?"
        )
    return ok(STAGE, f"the kernel log is read in {ms:.0f} ms, with the mark of an attempt's start")


def _gres(cluster: Cluster | None, node: str) -> int | None:
    """How many GPUs Slurm gives to the node; None if it does not say."""
    host = next((one for one in cluster.hosts if one.node == node), None) if cluster else None
    return None if host is None else host.gpus


def judge_inventory(gpus: frozenset[str], gres: int | None, node: str) -> Finding:
    """Without the PCI addresses of a job's GPUs no line of the driver's counts against it."""
    if gres is not None and len(gpus) < gres:
        what = f"node {node} has {gres} GPUs in Slurm, and {len(gpus)} are known by PCI address"
        return fail(STAGE, what, "Load NVIDIA's driver, or list them as gpu_inventory in slurm_ft.yaml")
    if not gpus:
        return warning(STAGE, f"node {node} has no GPU that is known", "If it has GPUs: gpu_inventory in slurm_ft.yaml")
    return ok(STAGE, f"{len(gpus)} GPUs of {node} are known by PCI address")


def _nvml(config: Config, gpus: frozenset[str]) -> Finding:
    if not config.nvml:
        return ok(STAGE, "NVML: switched off (nvml: off)")
    if not PROC_ROOT.is_dir():
        return ok(STAGE, "NVML: not needed, NVIDIA's driver is not loaded")
    if not nvml.installed():
        return warning(STAGE, "NVML: nvidia-ml-py is not installed", "pip install 'slurm_ft[nvml]' beside slurm_ft")
    began = time.perf_counter()
    evidence = nvml.read_gpu_state(gpus, None, NVML_S)
    took = time.perf_counter() - began
    hangs = next((event.source for event in evidence.events if event.name in SILENT), "")
    if hangs or not evidence.readable:
        return fail(STAGE, f"NVML: {hangs or evidence.detail}", "Run nvidia-smi, and mend what it says")
    if took > config.nvml_timeout:
        what = f"NVML answers in {took:.1f} s, and the Epilog waits {config.nvml_timeout:g} s"
        return warning(STAGE, what, "nvidia-smi -pm 1 (persistence mode), or a greater nvml_timeout")
    return ok(STAGE, f"NVML: its child process answers in {took * 1000:.0f} ms")


def _dcgm(config: Config, gpus: frozenset[str]) -> Finding:
    if config.dcgm == "off":
        return ok(STAGE, "DCGM: switched off (dcgm: off)")
    evidence = dcgm.read_dcgm(config.dcgm, gpus, None, config.dcgm_timeout)
    if not evidence.readable:
        return fail(STAGE, f"DCGM: {evidence.detail}", "Start nv-hostengine and set its watches: dcgmi health -s a")
    return ok(STAGE, f"DCGM: {config.dcgm} answers")

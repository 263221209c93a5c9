"""Whether a drained node may go back into service: what `check-node` looks at, and the kernel log since the drain."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from slurm_ft.classify import classify
from slurm_ft.classify.advice import asked, in_words
from slurm_ft.config import Config
from slurm_ft.model import NodeAction, NodeVerdict
from slurm_ft.node import repair_mark
from slurm_ft.node.check import Level, Line, NodeCheck, check_node
from slurm_ft.node.gate import FAILED, since_last_drain
from slurm_ft.override_file import load_overrides
from slurm_ft.sensors.gpu_inventory import gpus_of_node
from slurm_ft.slurm import environment

CHECK = "kernel log"
DIAGNOSIS_S = 300.0  # seconds for dcgmi
REBOOTS = ("RESTART_BM", "RESTART_VM")  # NVIDIA's actions that nothing but a boot carries out


def check_return(config: Config, run_dir: Path, node: str, cluster: str) -> NodeCheck:
    """For an admin on the node itself. The caller has made sure that no job is there."""
    checked = check_node(config, run_dir, node, DIAGNOSIS_S)
    lines, ran = _kernel_log(config, run_dir, node, cluster)
    return replace(checked, lines=(*checked.lines, *lines), ran=(*checked.ran, *ran))


def _kernel_log(config: Config, run_dir: Path, node: str, cluster: str) -> tuple[list[Line], list[str]]:
    """A fault that is newer than the drain: what was repaired is broken again, or was never repaired."""
    gpus = gpus_of_node(config.gpu_inventory.get(node, ()), run_dir / "gpus")
    mark = repair_mark.text({environment.NODE_NAME: node, environment.CLUSTER: cluster})
    found = since_last_drain(mark, config, gpus)
    if not found.readable:
        return [Line(Level.SUSPECT, CHECK, found.detail)], []
    verdict = classify((found,), FAILED, load_overrides(config.verdict_overrides))
    faulty = verdict.node_action is NodeAction.DRAIN
    return [Line(Level.FAULT, CHECK, verdict.reason)] if faulty else [], [f"{CHECK} since the drain"]


def unproven(node: str, checked: NodeCheck, faults: Iterable[NodeVerdict], booted: float) -> list[str]:
    """What speaks for no repair though no check found a fault: a boot that is missing, GPUs that nothing looked at.

    `booted` is unix seconds. Pure.
    """
    causes = {fault.cause: asked(fault.cause) for fault in faults if fault.at > booted}
    told = [
        f"{node} has not been rebooted since {cause}, for which NVIDIA says {in_words(action)}"
        for cause, action in causes.items()
        if action in REBOOTS
    ]
    if not any(ran.startswith(("nvml", "dcgmi")) for ran in checked.ran):
        told.append(f"nothing looked at the GPUs of {node}: neither NVML nor dcgmi could be asked")
    return told


def boot_time() -> float:
    """When this machine was booted, unix seconds."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

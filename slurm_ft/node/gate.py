"""`slurm-ft hook node-gate`: whether this node may start a job. The node Prolog asks when the kernel log is not clean.

A GPU that needs a reset, a reboot or a repair fails every job it is given. Refused, a job goes elsewhere without having
made an attempt. What counts is what drains a node: the driver's lines since the boot or since the last drain, unless
NVML, where it is installed, finds the GPUs in order (somebody has reset them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slurm_ft.classify import classify
from slurm_ft.config import Config, Gate
from slurm_ft.errors import SlurmFtError
from slurm_ft.failover import actions
from slurm_ft.log import open_log
from slurm_ft.model import GATE, EventKind, Evidence, ExitStatus, NodeAction, Verdict
from slurm_ft.node import attempt_file, repair_mark
from slurm_ft.node.epilog import node_verdict
from slurm_ft.node.observe import JOURNALCTL, KMSG
from slurm_ft.node.report import Reporter, allowed_action
from slurm_ft.override_file import load_overrides
from slurm_ft.sensors import nvml
from slurm_ft.sensors.gpu_inventory import gpus_of_job
from slurm_ft.sensors.kernel_log import Window, read_kernel_log
from slurm_ft.slurm import environment
from slurm_ft.slurm.cli import CommandLine

NAME = "node_gate"
REFUSED = 75  # the shell part then ends non-zero
OF_THE_GPUS = (EventKind.XID, EventKind.SXID, EventKind.OFF_BUS)
FAILED = ExitStatus(1, 0)  # the question is what these faults would do to a job


def run(environ: Mapping[str, str], config: Config) -> int:
    """REFUSED when the job must not start here, else 0. Raises SlurmFtError; the caller fails open."""
    key, node = environment.job_key(environ), environment.node_name(environ)
    if config.prolog_gate is Gate.OFF:
        return 0
    log = open_log(config, NAME)
    verdict = judge(environ, config, node)
    if verdict.node_action is not NodeAction.DRAIN:
        return 0
    said = f"job {key.address} on {node}: a GPU needs a repair: {verdict.cause}: {verdict.reason}"
    if config.prolog_gate is Gate.OBSERVE:
        log.warning("%s; started all the same (prolog_gate: observe)", said)
        return 0
    note = node_verdict(replace(verdict, cause=GATE + verdict.cause), key, node)
    reporter = Reporter(CommandLine.of(config), config, log)
    try:
        if allowed_action(reporter, note, NodeAction.DRAIN) is not NodeAction.DRAIN:
            log.warning("%s; started all the same", said)
            return 0
        log.warning("%s; refused", said)
        log.info(actions.report_fault(reporter.slurm, note, NodeAction.DRAIN))
    except SlurmFtError as error:  # the Prolog's failure drains the node too
        log.error("%s could not be drained with a reason: %s", node, error)
    repair_mark.write(environ, config.kernel_log)
    return REFUSED


def judge(environ: Mapping[str, str], config: Config, node: str) -> Verdict:
    """What the job's GPUs on this node look like before it starts."""
    configured = config.gpu_inventory.get(node, ())
    cache = attempt_file.run_dir(environ) / "gpus"
    gpus = gpus_of_job(environ.get(environment.GPUS, ""), configured=configured, cache=cache)
    overrides = load_overrides(config.verdict_overrides)
    if config.nvml and gpus and nvml.installed():
        state = nvml.read_gpu_state(gpus, None, config.nvml_timeout)
        if state.readable and not state.detail:
            return classify((state,), FAILED, overrides)
    return classify((since_last_drain(repair_mark.text(environ), config, gpus),), FAILED, overrides)


def since_last_drain(mark: str, config: Config, gpus: frozenset[str] | None) -> Evidence:
    """What the driver has said of these GPUs since the boot, or since the line `mark`."""
    window = Window(marker=mark, start=0.0, end=None, grace=0.0, boot_id=None)
    journal = JOURNALCTL if config.kernel_log == KMSG else None
    found = read_kernel_log(config.kernel_log, window, gpus, journal=journal)
    return replace(found, events=tuple(event for event in found.events if event.kind in OF_THE_GPUS))

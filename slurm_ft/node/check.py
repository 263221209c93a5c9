"""An admin's check of an idle node: what NVML says of its GPUs, then DCGM's quick diagnosis. Nothing here acts.

The diagnosis occupies the GPUs for some seconds, so it is refused while a job is on the node, and no hook ever runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from slurm_ft.classify.facts import Blame
from slurm_ft.classify.findings import findings_of
from slurm_ft.config import Config
from slurm_ft.errors import SlurmFtError
from slurm_ft.model import Evidence
from slurm_ft.node import attempt_file
from slurm_ft.override_file import load_overrides
from slurm_ft.sensors import dcgm, dcgm_diag, nvml
from slurm_ft.sensors.gpu_inventory import gpus_of_node
from slurm_ft.slurm.protocol import Slurm

NVML_S = 20.0  # seconds for NVML: nobody waits here as a hook does, and without persistence mode it starts slowly
HOLDING = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT")


class Level(str, Enum):
    """How a line of the check is to be read."""

    FAULT = "fault"  # the node must not take jobs
    SUSPECT = "suspect"  # not as it should be; look at it
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was found, by which check."""

    level: Level
    check: str
    text: str


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """What was found, and the checks that did run: one that could not says why in a note."""

    lines: tuple[Line, ...]
    ran: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether something was looked at, and nothing is wrong with it."""
        return bool(self.ran) and all(line.level is Level.NOTE for line in self.lines)


def refuse_busy(slurm: Slurm, run_dir: Path, node: str) -> None:
    """Raises SlurmFtError while a job is on the node, or if Slurm does not say so."""
    here = {str(attempt.raw_id) for attempt in attempt_file.running(run_dir, node)}
    here |= {job.address for job in slurm.jobs((f"--nodelist={node}",)) if job.state in HOLDING}
    if here:
        what = f"node {node} has jobs: {', '.join(sorted(here))}"
        raise SlurmFtError(what, f"Drain it and wait: scontrol update NodeName={node} State=DRAIN Reason=check")


def check_node(config: Config, run_dir: Path, node: str, timeout_s: float) -> NodeCheck:
    """Ask NVML, then DCGM for at most `timeout_s` seconds. The caller has made sure that no job is there."""
    gpus = gpus_of_node(config.gpu_inventory.get(node, ()), run_dir / "gpus")
    checks = (_nvml(config, gpus), _diagnosis(timeout_s))
    return NodeCheck(tuple(line for lines, _ in checks for line in lines), tuple(ran for _, ran in checks if ran))


def _nvml(config: Config, gpus: frozenset[str]) -> tuple[list[Line], str]:
    if not gpus:
        return [Line(Level.NOTE, "nvml", "not asked: the node has no GPU that is known (gpu_inventory)")], ""
    evidence = nvml.read_gpu_state(gpus, None, NVML_S)
    if not evidence.readable:
        return [Line(Level.SUSPECT, "nvml", evidence.detail)], ""
    if evidence.detail and not evidence.events:
        return [Line(Level.NOTE, "nvml", evidence.detail)], ""
    return _lines_of(evidence, config), f"nvml ({len(gpus)} GPUs)"


def _lines_of(evidence: Evidence, config: Config) -> list[Line]:
    findings = findings_of((evidence,), load_overrides(config.verdict_overrides))
    return [Line(_level(one.blame, drains=one.drains), "nvml", one.event.source) for one in findings]


def _level(blame: Blame, *, drains: bool) -> Level:
    if drains or blame is Blame.HARDWARE:
        return Level.FAULT
    return Level.NOTE if blame is Blame.NOBODY else Level.SUSPECT


def _diagnosis(timeout_s: float) -> tuple[list[Line], str]:
    diagnosis = dcgm_diag.run_diag(timeout_s)
    if diagnosis.problem:
        missing = not Path(dcgm.DCGMI).exists()
        return [Line(Level.NOTE if missing else Level.SUSPECT, "dcgmi diag", diagnosis.problem)], ""
    addresses = dcgm_diag.addresses(timeout_s)
    lines = [_line(fault, addresses) for fault in diagnosis.faults]
    return lines, f"dcgmi diag -r 1 ({diagnosis.passed} results passed)"


def _line(fault: dcgm_diag.DiagFault, addresses: Mapping[int, str]) -> Line:
    where = "" if fault.gpu is None else f"GPU {addresses.get(fault.gpu, f'{fault.gpu} of DCGM')}: "
    level = Level.FAULT if fault.is_hardware else Level.NOTE if fault.is_harmless else Level.SUSPECT
    return Line(level, "dcgmi diag", f"{where}{fault.test}: {fault.text}")

"""The node Epilog behind its shell part: sense, judge, and drain this node when its hardware is to blame."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from logging import Logger
from pathlib import Path

from slurm_ft.classify import classify
from slurm_ft.classify.repeats import PastFault, past_fault
from slurm_ft.config import Config, Mode
from slurm_ft.errors import SlurmFtError
from slurm_ft.log import open_log
from slurm_ft.model import IMAGE_PULL, Domain, EventKind, Evidence, JobKey, NodeAction, NodeVerdict, Verdict
from slurm_ft.node import attempt_file, fault_history, judgement_file, output_line, repair_mark
from slurm_ft.node.observe import observe
from slurm_ft.node.report import Reporter, report, unless_switched_off
from slurm_ft.override_file import load_overrides
from slurm_ft.sensors.job_output import UID
from slurm_ft.slurm import environment
from slurm_ft.slurm.cli import CommandLine

NAME = "node_epilog"
FAILED_EPILOG = 75  # EX_TEMPFAIL of sysexits.h; the shell part turns it into a failed Epilog, which drains the node


def run(environ: Mapping[str, str], config: Config) -> int:
    """Judge the ended attempt on this node; returns FAILED_EPILOG if a needed drain failed, or if the node was drained
    and Slurm wants to know it from the Epilog; else 0."""
    log = open_log(config, NAME)
    key, node = environment.job_key(environ), environment.node_name(environ)
    evidence = observe(environ, config, key, node)
    overrides, history = load_overrides(config.verdict_overrides), _history(environ, key, evidence)
    verdict = classify(evidence, environment.exit_status(environ), overrides, history)
    verdict = unless_switched_off(verdict, config)
    log.info("job %s attempt %d on %s: %s: %s", key.address, key.attempt, node, verdict.cause, verdict.reason)
    _keep(judgement_file.path_of(config.state_dir, node), verdict, evidence, key, log)
    code, action = _report(verdict, key, node, config, log)
    if output_line.wanted(environ, config, node):
        line = output_line.compose(environ, config, key, verdict, action)
        if refusal := output_line.append(environ, config, key, line):
            log.info("job %s: its log was not told why it ended: %s", key.address, refusal)
    if action is NodeAction.DRAIN:
        repair_mark.write(environ, config.kernel_log)
    return code


def _report(verdict: Verdict, key: JobKey, node: str, config: Config, log: Logger) -> tuple[int, NodeAction]:
    """Leave the verdict for the controller. Returns this hook's exit code, and what was done with the node."""
    if not _concerns_the_controller(verdict):
        return 0, NodeAction.NONE
    try:
        reporter = Reporter(CommandLine.of(config), config, log)
        action = report(reporter, node_verdict(verdict, key, node), verdict.node_action)
    except SlurmFtError as error:
        log.error("job %s: the verdict on %s could not be reported: %s", key.address, node, error)
        must_drain = config.mode is Mode.ACT and verdict.node_action is NodeAction.DRAIN
        return FAILED_EPILOG if must_drain else 0, NodeAction.NONE
    told_by_exit = action is NodeAction.DRAIN and verdict.domain is Domain.HARDWARE and _expedited(key, config)
    return FAILED_EPILOG if told_by_exit else 0, action


def _expedited(key: JobKey, config: Config) -> bool:
    """Slurm requeues an expedited job if a node's Epilog failed, and holds it if none did."""
    try:
        return CommandLine.of(config).expedited(key.address)
    except SlurmFtError:
        return False  # the controller's hook still requeues it


def _keep(path: Path, verdict: Verdict, evidence: Sequence[Evidence], key: JobKey, log: Logger) -> None:
    """For `slurm-ft explain`. A full disk costs the record, never the job."""
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    kept = judgement_file.judgement(verdict, evidence, f"{key.raw_id}.{key.attempt}", now=time.time(), uptime=uptime)
    try:
        judgement_file.append(path, kept)
    except OSError as error:
        log.error("%s cannot be written: %s", path, error)


def _concerns_the_controller(verdict: Verdict) -> bool:
    """Other ends are the program's own: were they reported, each bug of a large job would call Slurm from each node."""
    hardware = verdict.domain is Domain.HARDWARE or verdict.node_action is NodeAction.DRAIN
    return hardware or verdict.cause == IMAGE_PULL


def _history(environ: Mapping[str, str], key: JobKey, evidence: Sequence[Evidence]) -> tuple[PastFault, ...]:
    """What earlier jobs met here; this one's faults are remembered for the next."""
    directory, now, user = attempt_file.run_dir(environ), time.time(), environ.get(UID, "")
    past = fault_history.read(directory, now, key.raw_id)
    events = (event for one in evidence for event in one.events)
    own = {past_fault(event, key.raw_id, int(user)) for event in events} if user.isdecimal() else set()
    with suppress(OSError):
        fault_history.add(directory, now, sorted((fault for fault in own if fault is not None), key=repr))
    return past


def node_verdict(verdict: Verdict, key: JobKey, node: str) -> NodeVerdict:
    """The verdict as it is left for the controller, dated by its event: the earliest of several nodes is the root."""
    event = verdict.decisive
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    ago = 0.0 if event is None or event.at is None else max(uptime - event.at, 0.0)
    return NodeVerdict(
        node=node,
        raw_id=key.raw_id,
        attempt=key.attempt,
        domain=verdict.domain,
        cause=verdict.cause,
        pci=event.pci if event else None,
        at=time.time() - ago,
        # What the job printed may hold a secret, and anybody can read a Reason: that line stays in our own record.
        text=event.source if event and event.kind is not EventKind.OUTPUT else verdict.reason,
        at_link=verdict.at_link,
    )

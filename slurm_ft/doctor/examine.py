"""The pipeline: one stage after the other, along the way of a fault. Changes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurm_ft import config
from slurm_ft.config import CONFIG_VARIABLE, DEFAULT_CONFIG, Config
from slurm_ft.doctor import cluster as cluster_module
from slurm_ft.doctor.channels import check_channels
from slurm_ft.doctor.cluster import Cluster, Machine
from slurm_ft.doctor.finding import Finding, Stage, fail, ok
from slurm_ft.doctor.hooks import check_hooks
from slurm_ft.doctor.records import check_records
from slurm_ft.doctor.rehearsal import Stagehand, rehearse
from slurm_ft.doctor.sensors import check_sensors
from slurm_ft.doctor.services import check_services
from slurm_ft.doctor.slurm_settings import judge_settings
from slurm_ft.errors import ConfigError, SlurmFtError
from slurm_ft.failover import brake
from slurm_ft.install.change import Role
from slurm_ft.override_file import load_overrides
from slurm_ft.slurm.cli import CommandLine


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found, and on what machine."""

    machine: Machine
    findings: tuple[Finding, ...]


def examine(asked: Sequence[Role], node: str = "") -> Examination:
    """Every stage that concerns this machine. `asked` are its roles, none: those that slurm.conf gives it."""
    try:
        settings = config.load()
    except ConfigError as error:
        broken = fail(Stage.CONFIG, f"{error.what}: every hook does nothing until it is mended", error.fix)
        return Examination(Machine(frozenset(asked), node), (broken,))
    found = [ok(Stage.CONFIG, _about(settings))]
    try:
        cluster = cluster_module.look(CommandLine.of(settings).impatient())
        found += judge_settings(cluster, settings)
    except SlurmFtError as error:
        cluster = None
        found += [fail(Stage.SLURM, error.what, error.fix or "Is slurmctld up, and does Slurm find its slurm.conf?")]
    machine = cluster_module.own_machine(cluster, asked, node)
    named = node or machine.node
    if cluster and named and named not in {one.name for one in cluster.nodes}:
        found += [fail(Stage.SLURM, f"Slurm knows no node {named}", "sinfo lists them; --node names this one")]
    return Examination(machine, (*found, *_stages(settings, cluster, machine)))


def _about(settings: Config) -> str:
    named = os.environ.get(CONFIG_VARIABLE)
    if not named and not DEFAULT_CONFIG.exists():
        return f"there is no {DEFAULT_CONFIG}: the defaults, which only observe"
    return f"{named or DEFAULT_CONFIG}: mode {settings.mode.value}, opt_in {settings.opt_in.value}"


def _stages(settings: Config, cluster: Cluster | None, machine: Machine) -> Iterator[Finding]:
    serving = not machine.roles.isdisjoint((Role.CONTROLLER, Role.NODE))
    if cluster and serving:
        yield from check_hooks(cluster, machine)
    if Role.NODE in machine.roles:
        yield from check_sensors(cluster, settings, machine)
    yield from _rehearsal(settings, cluster, machine)
    if serving:
        yield from check_records(settings, machine.roles, cluster.slurm_user if cluster else "root")
        yield from check_services(machine)
        yield from check_channels(settings)


def _rehearsal(settings: Config, cluster: Cluster | None, machine: Machine) -> Iterator[Finding]:
    try:
        overrides = load_overrides(settings.verdict_overrides)
    except ConfigError as error:
        yield fail(Stage.VERDICT, error.what, error.fix)
        return
    held = brake.in_force(cluster.nodes) if cluster else None
    node = machine.node or next((one.name for one in (cluster.nodes if cluster else ())), "n1")
    yield from rehearse(Stagehand(settings, overrides, node, time.time(), str(held) if held else ""))

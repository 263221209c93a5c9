"""The configuration files of a local cluster, as pure functions from spec and layout to text."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import yaml

from slurm_ft.lab.spec import BACKUP_ADDRESS, BACKUP_HOST, HOOKS, LabSpec, Layout
from slurm_ft.slurm import fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def slurm_conf_text(spec: LabSpec, layout: Layout) -> str:
    """slurm.conf. What is left out (accounting, job completion) is "none" by default in every version."""
    lines, settings = list(spec.slurm_conf), _settings(spec, layout)
    replaced = {_key(line) for line in lines}
    own = [f"{key}={value}" for key, value in settings.items() if key.lower() not in replaced]
    nodes = [_node_line(spec, layout, k) for k in range(spec.nodes)]
    partition = "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
    return "\n".join([*own, *_backup(spec), *nodes, partition, *lines]) + "\n"


def _backup(spec: LabSpec) -> tuple[str, ...]:
    """Both controllers listen on one port, each on its own address. The backup takes over after SlurmctldTimeout."""
    if not spec.backup:
        return ()
    return (f"SlurmctldHost={BACKUP_HOST}({BACKUP_ADDRESS})", "CommunicationParameters=NoCtldInAddrAny")


def gres_conf_text(spec: LabSpec, layout: Layout) -> str:
    """gres.conf: all nodes share the same few device files."""
    if not spec.gpus_per_node:
        return ""
    numbers = "0" if spec.gpus_per_node == 1 else f"[0-{spec.gpus_per_node - 1}]"
    return f"Name=gpu File={layout.base}/dev/gpu{numbers}\n"


def cgroup_conf_text(spec: LabSpec, version: tuple[int, ...]) -> str | None:
    """cgroup.conf, or None for a Slurm that needs none without cgroups and would not know the value."""
    if spec.cgroup_conf:
        return "".join(f"{line}\n" for line in spec.cgroup_conf)
    return "CgroupPlugin=disabled\n" if fields.CGROUP_PLUGIN_DISABLED.on(version) else None


def slurm_ft_config_text(spec: LabSpec, layout: Layout, slurm_bin: Path) -> str:
    """slurm_ft.yaml."""
    config: dict[str, object] = {
        "mode": "act",
        "backoff": [0],  # nobody wants to wait in a lab
        "breaker_percent": 0,  # nor be stopped by the fourth drain of a handful of nodes
        "slurm_conf": str(layout.slurm_conf),
        "slurm_bin": str(slurm_bin),
        "state_dir": str(layout.base / "state" / "slurm_ft"),
        "log_file": str(layout.log / "slurm_ft.log"),
        "gpu_inventory": {
            node: [layout.pci(spec.gpus_per_node, node, gpu) for gpu in range(spec.gpus_per_node)]
            for node in layout.node_names
        },
    }
    return yaml.safe_dump({**config, **spec.config}, sort_keys=False)


def hook_wrapper_text(layout: Layout, command: Path, script: Path) -> str:
    """Slurm starts hooks with an almost empty environment: the wrapper says which lab they belong to."""
    exports: Mapping[str, Path] = {
        "SLURM_CONF": layout.slurm_conf,
        "SLURM_FT_CONFIG": layout.config,
        "SLURM_FT_BIN": command,
        "SLURM_FT_RUN_DIR": layout.run / "slurm_ft",
    }
    lines = [f"export {name}={shlex.quote(str(value))}" for name, value in exports.items()]
    return "\n".join(["#!/bin/sh", *lines, f'exec {shlex.quote(str(script))} "$@"']) + "\n"


def hook_wrapper(layout: Layout, name: str) -> Path:
    """Where the wrapper of a hook is."""
    return layout.etc / "hooks" / name


def _settings(spec: LabSpec, layout: Layout) -> dict[str, str]:
    return {**_places(spec, layout), **_behaviour(spec), **_hooks(spec, layout)}


def _places(spec: LabSpec, layout: Layout) -> dict[str, str]:
    return {
        "ClusterName": layout.cluster_name,
        "SlurmctldHost": f"{layout.hostname}(127.0.0.1)",
        "SlurmctldPort": str(layout.ctld_port),
        "SlurmUser": spec.slurm_user,
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={layout.munge_socket}",
        "StateSaveLocation": f"{layout.base}/state/slurmctld",
        "SlurmdSpoolDir": f"{layout.base}/spool/%n",
        "SlurmctldPidFile": f"{layout.run}/slurmctld/slurmctld.pid",
        "SlurmdPidFile": f"{layout.run}/%n.pid",
        "SlurmctldLogFile": f"{layout.log}/slurmctld.log",
        "SlurmdLogFile": f"{layout.log}/%n.log",
    }


def _behaviour(spec: LabSpec) -> dict[str, str]:
    settings = {
        # No cgroups: they are seldom writable in a container.
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "MpiDefault": "none",
        "MailProg": "/bin/true",
        # The nodes claim CPUs and memory that the machine may not have.
        "SlurmdParameters": "config_overrides",
        # A node that did not answer comes back by itself; one that an admin set DOWN or drained does not.
        "ReturnToService": "1",
        # The prolog runs when the job starts, not when its first step does.
        "PrologFlags": "Alloc",
        # Schedule at once: the lab is there to try things, not to spread load.
        "SchedulerParameters": (
            "sched_min_interval=0,sched_interval=1,batch_sched_delay=0,bf_interval=1,nohold_on_prolog_fail"
        ),
        "JobRequeue": "1",
        "MinJobAge": "600",
        "KillWait": "5",
        "SlurmctldTimeout": "5" if spec.backup else "30",
        "SlurmdTimeout": "60",
        "SlurmctldDebug": "debug",
        "SlurmdDebug": "debug",
    }
    return {**settings, "GresTypes": "gpu"} if spec.gpus_per_node else settings


def _hooks(spec: LabSpec, layout: Layout) -> dict[str, str]:
    return {
        parameter: str(hook_wrapper(layout, name))
        for name, (parameter, _) in HOOKS.items()
        if name not in spec.hooks or spec.hooks[name] is not None
    }


def _node_line(spec: LabSpec, layout: Layout, k: int) -> str:
    gres = f" Gres=gpu:{spec.gpus_per_node}" if spec.gpus_per_node else ""
    return (
        f"NodeName={layout.node_names[k]} NodeHostname={layout.hostname} NodeAddr=127.0.0.1 "
        f"Port={layout.node_ports[k]} CPUs={spec.cpus_per_node} RealMemory=1000{gres} State=UNKNOWN"
    )


def _key(line: str) -> str:
    return line.partition("=")[0].strip().lower()

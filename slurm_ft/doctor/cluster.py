"""What the doctor knows of the cluster and of this machine's part in it. `look` asks Slurm; the rest is pure."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurm_ft.install.change import Role
from slurm_ft.slurm.cli import CommandLine, Host
from slurm_ft.slurm.protocol import NodeRecord


@dataclass(frozen=True, slots=True)
class Cluster:
    """slurm.conf as slurmctld has it, the nodes, and the machines they are on."""

    settings: Mapping[str, str]
    hosts: Sequence[Host] = ()
    nodes: Sequence[NodeRecord] = ()

    @property
    def name(self) -> str:
        """ClusterName."""
        return self.settings.get("ClusterName", "")

    @property
    def slurm_user(self) -> str:
        """The account of slurmctld and of its hooks."""
        return self.settings.get("SlurmUser", "root").partition("(")[0]

    def all_of(self, key: str) -> tuple[str, ...]:
        """The values of a setting that may be given several times: Slurm then shows `Key[0]`, `Key[1]` …"""
        numbered = re.compile(rf"{re.escape(key)}(\[[0-9]+\])?")
        return tuple(value for name, value in self.settings.items() if value and numbered.fullmatch(name))

    def words(self, key: str) -> frozenset[str]:
        """A setting that is a list, in lower case."""
        return frozenset(word.strip().lower() for word in self.settings.get(key, "").split(",") if word.strip())


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine is. `node` is its name in Slurm, empty where it is no compute node."""

    roles: frozenset[Role] = field(default_factory=frozenset)
    node: str = ""

    @property
    def names(self) -> str:
        """For people."""
        return ", ".join(role.value for role in Role if role in self.roles)


def look(slurm: CommandLine) -> Cluster:
    """Three questions to Slurm. Raises SlurmCommandError."""
    return Cluster(slurm.settings(), slurm.hosts(), slurm.nodes())


def own_machine(cluster: Cluster | None, asked: Sequence[Role], node: str = "") -> Machine:
    """The roles that were asked for, or those that slurm.conf gives to a machine of this name."""
    name = socket.gethostname()
    found = "" if cluster is None else node_on(cluster, name)
    roles = frozenset(asked) or (frozenset() if cluster is None else roles_of(cluster, name))
    return Machine(roles, (node or found or _short(name)) if Role.NODE in roles else "")


def roles_of(cluster: Cluster, host: str) -> frozenset[Role]:
    """What a machine is by slurm.conf. One that is neither controller nor node is taken for a login node."""
    controllers = {_short(one.partition("(")[0]) for one in cluster.all_of("SlurmctldHost")}
    roles = {Role.CONTROLLER} if _short(host) in controllers else set()
    roles |= {Role.NODE} if node_on(cluster, host) else set()
    return frozenset(roles or {Role.LOGIN})


def node_on(cluster: Cluster, host: str) -> str:
    """The first node on this machine, or ""."""
    return next((one.node for one in cluster.hosts if _short(host) in (_short(one.host), one.node)), "")


def _short(name: str) -> str:
    return name.partition(".")[0]

"""What a local cluster is asked to be (LabSpec) and where its parts are (Layout). No I/O."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_ft.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Name of the hook in the lab -> the parameter in slurm.conf, and the file among our resources.
HOOKS: Mapping[str, tuple[str, str]] = {
    "prolog": ("Prolog", "prolog/node_prolog"),
    "task_prolog": ("TaskProlog", "prolog/task_prolog"),
    "epilog": ("Epilog", "epilog/node_epilog"),
    "prolog_slurmctld": ("PrologSlurmctld", "prolog/slurmctld_prolog"),
    "epilog_slurmctld": ("EpilogSlurmctld", "epilog/slurmctld_epilog"),
}

# The host name and the address of the backup controller: a machine of its own to Slurm.
BACKUP_HOST, BACKUP_ADDRESS = "backup", "127.0.0.2"

NO_HOOKS: Mapping[str, Path | None] = dict.fromkeys(HOOKS)

# A Unix socket's path holds 107 characters, and slurmd puts `spool/n100/n100_1234567.4294967291` below the base.
MAX_BASE_LENGTH = 64


@dataclass(frozen=True, slots=True)
class LabSpec:
    """What the cluster is asked to be.

    `hooks` maps a name of HOOKS to a script that takes its place, or to None for "not installed"; a name that is
    missing means our own hook. `slurm_conf` holds further lines; one that sets a parameter that we set too replaces
    ours. `config` overrides keys of slurm_ft.yaml. `keep` leaves the directory in place when the lab is stopped.
    `backup` prepares a second slurmctld (Lab.start_backup). `cgroup_conf` holds the lines of cgroup.conf, for a lab
    whose `slurm_conf` asks for cgroups; without any there are none, since they are seldom writable in a container.
    """

    nodes: int = 3
    gpus_per_node: int = 2
    cpus_per_node: int = 2
    base: Path | None = None
    slurm_prefix: Path | None = None
    user: str = "nobody"
    slurm_user: str = "root"
    slurm_conf: tuple[str, ...] = ()
    cgroup_conf: tuple[str, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)
    hooks: Mapping[str, Path | None] = field(default_factory=dict)
    keep: bool = False
    backup: bool = False

    def __post_init__(self) -> None:
        _check_range("nodes", self.nodes, 1, 1000)
        _check_range("gpus_per_node", self.gpus_per_node, 0, 16)
        _check_range("cpus_per_node", self.cpus_per_node, 1, 1024)
        if unknown := sorted(set(self.hooks) - set(HOOKS)):
            raise LabError(f"unknown hook {unknown[0]!r} in LabSpec.hooks", f"Valid names: {', '.join(HOOKS)}.")

    def to_json(self) -> dict[str, Any]:
        """Plain values for lab.json."""
        plain = asdict(self)
        plain["base"], plain["slurm_prefix"] = _text(self.base), _text(self.slurm_prefix)
        plain["hooks"] = {name: _text(script) for name, script in self.hooks.items()}
        plain["config"] = dict(self.config)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> LabSpec:
        """The inverse of `to_json`. Keys that a newer version wrote are ignored."""
        known = {f.name for f in fields(cls)}
        values = {key: value for key, value in plain.items() if key in known}
        values["base"], values["slurm_prefix"] = _path(values["base"]), _path(values["slurm_prefix"])
        values["hooks"] = {name: _path(script) for name, script in values["hooks"].items()}
        for name in ("slurm_conf", "cgroup_conf"):
            values[name] = tuple(values.get(name, ()))
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Layout:
    """Directories, names and ports of one lab. `lab_id` is eight hex digits."""

    base: Path
    lab_id: str
    hostname: str
    ctld_port: int
    node_ports: tuple[int, ...]

    @property
    def cluster_name(self) -> str:
        """Unique, because state and credentials of two labs must never be taken for each other's."""
        return f"lab{self.lab_id}"

    @property
    def node_names(self) -> tuple[str, ...]:
        """n1 … nN."""
        return tuple(f"n{k}" for k in range(1, len(self.node_ports) + 1))

    @property
    def etc(self) -> Path:
        """Configuration files, the munge key and the hook wrappers."""
        return self.base / "etc"

    @property
    def slurm_conf(self) -> Path:
        """What SLURM_CONF names."""
        return self.etc / "slurm.conf"

    @property
    def config(self) -> Path:
        """What SLURM_FT_CONFIG names."""
        return self.etc / "slurm_ft.yaml"

    @property
    def log(self) -> Path:
        """Logs of all daemons and of slurm_ft."""
        return self.base / "log"

    @property
    def run(self) -> Path:
        """Sockets and pid files."""
        return self.base / "run"

    @property
    def munge_socket(self) -> Path:
        """The private munged's socket."""
        return self.run / "munge.sock"

    @property
    def shared(self) -> Path:
        """The "shared file system" of the cluster, writable by the ordinary user."""
        return self.base / "shared"

    @property
    def record(self) -> Path:
        """Says which processes were started, for whoever has to end them."""
        return self.base / "lab.json"

    def pci(self, gpus_per_node: int, node: str, gpu: int) -> str:
        """The made-up PCI address of a GPU, e.g. `4c1e:03:00.0`, unique per lab, node and GPU.

        All nodes of a lab (and all labs of a machine) share one kernel log: only the address tells them apart.
        """
        index = self.node_names.index(node) * gpus_per_node + gpu
        return f"{self.lab_id[:4]}:{index & 0xFF:02x}:{index >> 8:02x}.0"


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise LabError(f"LabSpec.{name} is {value}", f"Choose a number from {low} to {high}.")


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)

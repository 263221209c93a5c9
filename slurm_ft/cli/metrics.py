"""`slurm-ft metrics`: one look at the journal and the nodes, as text for Prometheus (node_exporter's textfiles)."""

from __future__ import annotations

import argparse
from pathlib import Path

from slurm_ft import config, journal
from slurm_ft.alerts import outbox_file, spool
from slurm_ft.config import Config
from slurm_ft.errors import SlurmCommandError, SlurmFtError
from slurm_ft.failover import brake, node_record
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.slurm.protocol import Slurm
from slurm_ft.whole_file import write_whole


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--output", type=Path, metavar="FILE.prom", help="write this file, whole or not at all (default: print)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the metrics, or write the file."""
    settings = config.load()
    slurm = CommandLine.of(settings).impatient()
    if arguments.output:
        write(settings, slurm, arguments.output)
    else:
        print(_text(settings, slurm), end="")
    return 0


def write(settings: Config, slurm: Slurm, path: Path) -> None:
    """Replace the file as a whole. It names no user and no job, so everybody may read it. Raises SlurmFtError."""
    text = _text(settings, slurm)
    try:
        write_whole(path, text, 0o644)
    except OSError as error:
        raise SlurmFtError(f"{path}: {error.strerror}", "Does its directory exist, and may you write there?") from error


def _text(settings: Config, slurm: Slurm) -> str:
    try:
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - optional

        from slurm_ft.status.metrics import Collector, Present  # noqa: PLC0415 - needs it
    except ImportError:
        raise SlurmFtError("prometheus-client is not installed", "pip install 'slurm_ft[metrics]'") from None
    registry = CollectorRegistry()
    try:
        present = Present(*_nodes(slurm), _waiting(settings))
        registry.register(Collector(journal.entries(settings.state_dir), present))
    except OSError as error:
        what = f"the journal in {settings.state_dir}: {error.strerror}"
        raise SlurmFtError(what, "Run as root or as SlurmUser") from error
    return generate_latest(registry).decode()


def _nodes(slurm: Slurm) -> tuple[str | None, int | None]:
    """The brake that is on, and how many nodes we have drained; not known while Slurm does not answer."""
    try:
        nodes = slurm.nodes()
    except SlurmCommandError:
        return None, None
    held = brake.in_force(nodes)
    drained = sum(node.draining and node_record.is_ours(node.reason) for node in nodes)
    return held.kind.value if held else "", drained


def _waiting(settings: Config) -> int:
    return len(spool.paths(settings.state_dir)) + len(outbox_file.load(settings.state_dir).waiting)

"""`slurm-ft reconcile`: finish the failovers whose hooks were killed. Run by a systemd timer on the controller."""

from __future__ import annotations

import argparse
import os
from contextlib import suppress

from slurm_ft import config, journal
from slurm_ft.alert import Alert, Kind
from slurm_ft.alerts import sender, spool
from slurm_ft.cli import metrics
from slurm_ft.config import Config
from slurm_ft.controller import reconcile
from slurm_ft.controller.site import Site
from slurm_ft.errors import SlurmFtError
from slurm_ft.status import fleet
from slurm_ft.status.fleet import NodeView

NAME = "reconcile"
PATIENCE = 120.0  # seconds for Slurm's answers


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments: what is open is finished, anything else is left alone."""


def run(_: argparse.Namespace) -> int:
    """One pass over all jobs; prints what was done."""
    settings = config.load()
    _check_access(settings)
    site = Site.of(settings, NAME, os.environ, PATIENCE)
    if not site.acting:
        print("mode: observe: nothing is changed")
        _send_alerts(site)
        _write_metrics(site)
        return 0
    done = reconcile.reconcile_all(site)
    print("\n".join(done) or "nothing was left open")
    if site.config.alert_channels:
        _spool_lemons(site)
    _send_alerts(site)
    _write_metrics(site)
    return 0


def _write_metrics(site: Site) -> None:
    """Raises SlurmFtError."""
    if site.config.metrics_file:
        metrics.write(site.config, site.slurm, site.config.metrics_file)


def _spool_lemons(site: Site) -> None:
    """Nodes that failed, came back and failed again, as long as that is news. Raises SlurmCommandError."""
    now, config = site.now(), site.config
    for view in fleet.views(site.slurm.nodes(), site.entries(), now - config.lemon_window):
        if view.repeats and now - view.faults[-1].at < config.alert_cool_down:
            with suppress(OSError):
                spool.put(config.state_dir, _lemon(view, site))


def _lemon(view: NodeView, site: Site) -> Alert:
    last, name, days = view.faults[-1], view.node.name, site.config.lemon_window / 86400
    return Alert(
        kind=Kind.LEMON_NODE,
        what=f"node {name} keeps failing: {len(view.faults)} faults in {days:g} days, {view.jobs} jobs hit",
        at=last.at,
        subject=f"node {name} fault {last.raw_id}.{last.attempt}",
        cluster=site.cluster,
        nodes=name,
        cause=" ".join((last.cause, last.pci)).strip(),
        following="it stays drained" if view.drained else "it is in service",
        command="slurm-ft nodes",
    )


def _send_alerts(site: Site) -> None:
    """Those that the hooks' own senders could not deliver."""
    if not site.config.alert_channels:
        return
    try:
        sender.send(site.config, site.log)
    except OSError as error:
        raise SlurmFtError(f"the spool in {site.config.state_dir}: {error}", "Run as root or as SlurmUser") from error


def _check_access(settings: Config) -> None:
    """What it decides has to be in the journal. Raises SlurmFtError for a person who may not write there."""
    path = settings.state_dir / journal.FILE_NAME
    try:
        there = path.exists()
    except PermissionError:  # of the directory; newer Pythons say False
        there = True
    if there and not os.access(path, os.R_OK):
        raise SlurmFtError(f"{path}: not readable", "Run as root or as SlurmUser, on the controller")

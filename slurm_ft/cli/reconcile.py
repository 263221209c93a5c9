"""`slurm-ft reconcile`: finish the failovers whose hooks were killed. Run by a systemd timer on the controller."""

from __future__ import annotations

import argparse
import os

from slurm_ft import config, journal
from slurm_ft.alerts import sender
from slurm_ft.config import Config
from slurm_ft.controller import reconcile
from slurm_ft.controller.site import Site
from slurm_ft.errors import SlurmFtError

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
        return 0
    done = reconcile.reconcile_all(site)
    print("\n".join(done) or "nothing was left open")
    _send_alerts(site)
    return 0


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
    if path.exists() and not os.access(path, os.R_OK):
        raise SlurmFtError(f"{path}: not readable", "Run as root or as SlurmUser, on the controller")

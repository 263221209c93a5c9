"""Whether the parts that run beside the hooks do run: the watcher on a node, the timer on the controller."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from slurm_ft.doctor.cluster import Machine
from slurm_ft.doctor.finding import Finding, Stage, ok, warning
from slurm_ft.install.change import Role
from slurm_ft.install.observe import BOOTED
from slurm_ft.install.services import SYSTEMCTL
from slurm_ft.node import attempt_file, single

STAGE = Stage.SERVICES


def check_services(machine: Machine) -> Iterator[Finding]:
    """None of them is needed for a failover; each closes a gap."""
    if Role.NODE in machine.roles:
        yield _watcher(machine.node)
    if Role.CONTROLLER in machine.roles:
        yield _reconcile()


def _watcher(node: str) -> Finding:
    holder = single.holder(attempt_file.run_dir() / f"watch.{node}.lock")
    if holder:
        return ok(STAGE, f"slurm-ft watch runs on {node} (process {holder})")
    what = f"slurm-ft watch does not run on {node}: a job that hangs on a broken GPU goes on hanging"
    return warning(STAGE, what, "systemctl enable --now slurm-ft-watch")


def _reconcile() -> Finding:
    unit = "slurm-ft-reconcile.timer"
    if not BOOTED.is_dir():
        return warning(
            STAGE, "systemd does not run here: a killed hook is finished late", "Run slurm-ft reconcile each minute"
        )
    done = subprocess.run([SYSTEMCTL, "is-active", "--quiet", unit], timeout=30, check=False)
    if done.returncode == 0:
        return ok(STAGE, f"{unit} is active")
    return warning(STAGE, f"{unit} is not active: a killed hook is finished late", f"systemctl enable --now {unit}")

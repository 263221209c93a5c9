"""Install the wheel into /opt/slurm_ft, let `slurm-ft install` set up a cluster, fail a job over, take it out again.

A program of its own, which test_installed.py starts as `installed_machine.py WHEEL PYTHON` in a mount namespace: what
it changes in COVERED and in /opt/slurm_ft goes into a tmpfs that only it sees. Prints what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from steps import OPTED_IN, end, lose_gpu, running, submit

from slurm_ft.lab import NO_HOOKS, Lab, LabSpec

# Not all of /etc: files in it may be mounts of their own (resolv.conf in a container), which would vanish.
COVERED = ("etc/slurm", "etc/systemd/system", "etc/logrotate.d", "usr/local/bin", "var/lib")
COMMAND = "/opt/slurm_ft/bin/slurm-ft"
CONFIG = Path("/etc/slurm/slurm_ft.yaml")
SHARE = Path("/opt/slurm_ft/share/slurm_ft")
BARE = {"LC_ALL": "C.UTF-8"}  # no PATH, as Slurm starts its hooks


def cover() -> Path:
    """Writable copies of some directories, which end with this process; returns where what is changed lies."""
    upper = Path(tempfile.mkdtemp(prefix="slurm_ft-installed-"))
    for place in (upper, Path("/opt/slurm_ft")):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(place)], check=True)
    for name in filter(lambda name: Path("/", name).is_dir(), COVERED):
        changed, work = upper / name / "changed", upper / name / "work"
        changed.mkdir(parents=True)
        work.mkdir()
        options = f"lowerdir=/{name},upperdir={changed},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", f"/{name}"], check=True)
    if Path("/run/systemd").is_dir():  # this machine's own systemd is not told of any of it
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/systemd"], check=True)
    for path in ("/var/lib/slurm_ft", "/var/lib/slurm_ft_install"):  # as if it had never been here
        shutil.rmtree(path, ignore_errors=True)
    CONFIG.unlink(missing_ok=True)
    return upper


def written(upper: Path) -> list[str]:
    """The files that were made or changed in the covered directories, by their own names."""
    found = []
    for name in COVERED:
        changed = upper / name / "changed"
        found += [f"/{name}/{path.relative_to(changed)}" for path in changed.rglob("*") if path.is_file()]
    return sorted(found)


def pip_install(wheel: str, python: str) -> None:
    subprocess.run([python, "-m", "venv", "/opt/slurm_ft"], check=True)
    subprocess.run(["/opt/slurm_ft/bin/python", "-m", "pip", "install", "--quiet", wheel], check=True)


def call(*arguments: str) -> tuple[int, str]:
    """The installed command, without a PATH."""
    done = subprocess.run([COMMAND, *arguments], env=BARE, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def files() -> dict[str, str]:
    """What is in the directories that an installation writes to; the virtual environment is pip's."""
    found = {}
    for top in ("/etc/slurm", "/etc/systemd/system", "/etc/logrotate.d", "/usr/local/bin", "/var/lib/slurm_ft"):
        for base, folders, names in os.walk(top):
            for path in (Path(base, name) for name in (*folders, *names)):
                text = str(path.readlink()) if path.is_symlink() else path.read_bytes().hex() if path.is_file() else ""
                found[str(path)] = f"{path.lstat().st_mode:o} {text}"
    return found


def configure(lab: Lab) -> None:
    """As an admin would: act, and name the GPUs, which have no driver here."""
    settings = yaml.safe_load(lab.layout.config.read_text())
    own = yaml.safe_dump({"gpu_inventory": settings["gpu_inventory"]})
    text = (
        CONFIG.read_text()
        .replace("mode: observe", "mode: act")
        .replace("log_file: null", f"log_file: {lab.base}/ft.log")
    )
    CONFIG.write_text(text + own)


def restart(lab: Lab) -> None:
    """All daemons read slurm.conf anew: a reconfigure reaches the nodes some time later, and nothing says when."""
    lab.stop_controller()
    for name in lab.nodes:
        lab.kill_node(name)
        lab.start_node(name)
    lab.start_controller()


def fail_over(lab: Lab) -> dict[str, Any]:
    """A job that loses its GPU, judged by the installed hooks alone."""
    job = submit(lab, *OPTED_IN)
    bad = lose_gpu(lab, job, 0)
    good = running(lab, job, 1)
    end(lab, job, 1, 0)
    ended = lab.wait_job(job, "COMPLETED")
    return {
        "bad": bad,
        "good": good,
        "restarts": ended["restarts"],
        "reason": lab.node(bad)[1],
        "comment": ended["comment"],
    }


def verify_units() -> tuple[int, str] | None:
    """What systemd says of the installed units, of their settings and of what they start; None without systemd."""
    program = "/usr/bin/systemd-analyze"
    if not Path(program).exists() or not Path("/usr/bin/systemctl").exists():
        return None
    units = sorted(map(str, Path("/etc/systemd/system").glob("slurm-ft-*")))
    done = subprocess.run([program, "verify", *units], capture_output=True, text=True, timeout=60, check=False)
    ours = [line for line in done.stderr.splitlines() if "slurm-ft" in line]
    return done.returncode, "\n".join(ours)


def through(upper: Path, wheel: str, python: str) -> dict[str, Any]:
    pip_install(wheel, python)
    before = files()
    with Lab(LabSpec(hooks=NO_HOOKS)) as lab:
        conf_before = lab.slurm_conf.read_text()
        install = ("install", "--role", "controller", "--role", "node", "--slurm-conf", str(lab.slurm_conf))
        seen: dict[str, Any] = {"dry_run": call(*install, "--edit-slurm-conf", "--dry-run")}
        seen["dry_run_changes"] = files() != before or lab.slurm_conf.read_text() != conf_before
        seen["install"] = call(*install, "--edit-slurm-conf")
        seen["again"] = call(*install, "--edit-slurm-conf")
        seen["units"] = verify_units()
        configure(lab)
        restart(lab)
        lab.wait_for(lambda: all(lab.node(name)[0] == "idle" for name in lab.nodes), 60, "idle nodes")
        seen["doctor"] = call("doctor", "--json", "--role", "controller", "--role", "node")
        seen["failover"] = fail_over(lab)
        task = lab.sbatch('#!/bin/sh\necho "$CHECKPOINT_VENDOR"\n', "--output=vendor.log")
        lab.wait_job(task, "COMPLETED")
        seen["vendor"] = (lab.shared / "vendor.log").read_text().strip()
        state = Path("/var/lib/slurm_ft")
        seen["open_files"] = [str(path) for path in (state, *state.rglob("*")) if path.stat().st_mode & 0o007]
        seen["log_mode"] = oct((lab.base / "ft.log").stat().st_mode & 0o777)
        seen["written"] = written(upper)
        seen["changed_config"] = call("uninstall")
        seen["config_stays"] = CONFIG.exists()
        CONFIG.unlink()
        seen["uninstall"] = call("uninstall", "--purge")
        seen["conf_restored"] = lab.slurm_conf.read_text() == conf_before
        made = {"/etc/systemd/system/timers.target.wants", "/etc/systemd/system/multi-user.target.wants"}
        after = files()
        seen["left"] = sorted(path for path in after if path not in (*before, *made))
        seen["gone"] = sorted(path for path in before if after.get(path) != before[path])
    return seen


if __name__ == "__main__":
    sys.stdout.write(json.dumps(through(cover(), *sys.argv[1:])))

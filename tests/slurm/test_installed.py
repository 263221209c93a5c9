"""The wheel in a virtual environment in /opt, a cluster that `slurm-ft install` has set up, and nothing of it left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SYSTEM_PYTHON = "/usr/bin/python3"  # jobs of every user start it


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(directory.glob("*.whl"))


@cache
def namespace() -> tuple[str, ...] | None:
    """What starts a program whose mounts nobody else sees; None where that cannot be had.

    In a chroot `/` is no mount whose propagation could be set; there it has to be private already.
    """
    ways = ["private"] if " shared:" in Path("/proc/self/mountinfo").read_text() else ["private", "unchanged"]
    for way in ways:
        command = ("unshare", "--mount", "--propagation", way, "--")
        attempt = subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
        if attempt.returncode == 0:
            return command
    return None


@pytest.fixture(scope="module")
def prefix() -> Iterator[Path]:
    """/opt/slurm_ft, to be covered: one that is there already stays as it is."""
    path = Path("/opt/slurm_ft")
    there = path.is_dir()
    path.mkdir(exist_ok=True)
    yield path
    if not there:
        path.rmdir()


@pytest.fixture(scope="module")
def seen(wheel: Path, prefix: Path) -> dict[str, Any]:
    """One run of the whole story."""
    alone = namespace()
    if alone is None:
        pytest.skip("no mount namespaces here (a container needs --privileged): /opt and /etc must not be written to")
    script = Path(__file__).with_name("installed_machine.py")
    paths = os.pathsep.join(map(str, (ROOT, script.parent)))
    done = subprocess.run(
        [*alone, sys.executable, str(script), str(wheel), SYSTEM_PYTHON],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_dry_run_changes_nothing_and_an_installation_all_it_said(seen: dict[str, Any]) -> None:
    said, done = seen["dry_run"], seen["install"]
    assert (said[0], done[0], seen["dry_run_changes"]) == (0, 0, False)
    would = [line.removeprefix("would make").strip() for line in said[1].splitlines() if line.startswith("would make")]
    making = [line.removeprefix("making").strip() for line in done[1].splitlines() if line.startswith("making")]
    assert would == making
    assert len(making) >= 5  # more where systemd is installed
    assert seen["again"][0] == 0
    assert "nothing to do" in seen["again"][1]


def test_the_units_are_understood_by_systemd(seen: dict[str, Any]) -> None:
    if seen["units"] is None:
        pytest.skip("systemd is not installed here")
    assert seen["units"] == [0, ""]


def test_the_doctor_finds_nothing_that_fails(seen: dict[str, Any]) -> None:
    code, text = seen["doctor"]
    told = json.loads(text)
    assert [one["what"] for one in told["findings"] if one["level"] == "fail"] == []
    assert code == 0
    assert any("/opt/slurm_ft/bin/slurm-ft starts without a PATH" in one["what"] for one in told["findings"])


def test_a_job_fails_over_by_the_installed_hooks_alone(seen: dict[str, Any]) -> None:
    told = seen["failover"]
    assert told["good"] != told["bad"]
    assert told["restarts"] == "1"
    assert told["reason"].startswith("slurm_ft: hardware xid79")
    assert told["comment"] == f"[slurm_ft n=1/3 ex={told['bad']} cause=xid79]"


def test_tasks_get_the_checkpoint_library(seen: dict[str, Any]) -> None:
    assert seen["vendor"].startswith("/opt/slurm_ft/lib/python3")
    assert seen["vendor"].endswith("/site-packages/slurm_ft/vendor")


def test_nobody_else_can_read_what_was_kept(seen: dict[str, Any]) -> None:
    assert (seen["open_files"], seen["log_mode"]) == ([], "0o640")


def test_nothing_is_written_anywhere_else(seen: dict[str, Any]) -> None:
    ours = ("/etc/slurm/slurm_ft.yaml", "/etc/systemd/system/slurm-ft-", "/etc/logrotate.d/slurm_ft")
    ours += ("/usr/local/bin/slurm-ft", "/var/lib/slurm_ft/", "/var/lib/slurm_ft_install/manifest.json")
    links = tuple(f"/etc/systemd/system/{target}.target.wants/slurm-ft-" for target in ("timers", "multi-user"))
    assert "/var/lib/slurm_ft/journal.jsonl" in seen["written"]
    assert [path for path in seen["written"] if not path.startswith((*ours, *links))] == []


def test_an_uninstall_leaves_the_machine_as_it_was(seen: dict[str, Any]) -> None:
    assert (seen["changed_config"][0], seen["config_stays"]) == (3, True)
    assert seen["uninstall"][0] == 0
    assert (seen["left"], seen["gone"], seen["conf_restored"]) == ([], [], True)


def test_a_hook_that_was_installed_elsewhere_finds_its_command_without_a_path(wheel: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "opt" / "my slurm_ft"
    subprocess.run([SYSTEM_PYTHON, "-m", "venv", str(prefix)], check=True)
    subprocess.run([str(prefix / "bin/python"), "-m", "pip", "install", "--quiet", str(wheel)], check=True)
    config, log = tmp_path / "slurm_ft.yaml", tmp_path / "log"
    config.write_text(f"slurm_bin: /nonexistent\nlog_file: {log}\nstate_dir: {tmp_path}/state\n")
    job = ("SLURM_JOB_ID=12", "SLURM_JOB_COMMENT=[slurm_ft]", "SLURM_JOB_EXIT_CODE2=1:0", f"SLURM_FT_CONFIG={config}")
    hook = prefix / "share/slurm_ft/epilog/slurmctld_epilog"
    subprocess.run(["/usr/bin/env", "-i", *job, str(hook)], check=True, timeout=120)
    assert "slurmctld-epilog" in log.read_text()  # it ran, and found no Slurm where the configuration says

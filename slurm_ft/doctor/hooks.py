"""Whether Slurm's hooks are ours, can be started, cannot be changed by anybody else, and cost what they should."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import slurm_ft
from slurm_ft.doctor.cluster import Cluster, Machine
from slurm_ft.doctor.finding import Finding, Stage, fail, ok, warning
from slurm_ft.install import trust
from slurm_ft.install.accounts import ids
from slurm_ft.install.change import Role
from slurm_ft.install.plan import DEFAULT_PREFIX
from slurm_ft.lab.resources import resources_dir
from slurm_ft.lab.spec import HOOKS

STAGE = Stage.HOOKS
ROLE_OF: Mapping[str, Role] = {
    "prolog": Role.NODE,
    "task_prolog": Role.NODE,
    "epilog": Role.NODE,
    "prolog_slurmctld": Role.CONTROLLER,
    "epilog_slurmctld": Role.CONTROLLER,
}
RUNS = 5
TIMEOUT_S = 60.0
SLOW_MS = 100.0  # a hook on the clean path takes less than a tenth of it, also on a busy machine
NOTHING_DONE = "/bin/true"  # stands for slurm-ft while a hook is timed: it judges nothing and drains nothing


def check_hooks(cluster: Cluster, machine: Machine) -> Iterator[Finding]:
    """Those of this machine's roles, and the command that they start."""
    yield from _command(machine)
    for name, (parameter, file) in HOOKS.items():
        if ROLE_OF[name] in machine.roles:
            yield from _hook(parameter, resources_dir() / file, cluster, ROLE_OF[name])


def _command(machine: Machine) -> Iterator[Finding]:
    """The hooks have no PATH: they look beside their own place, then in /opt/slurm_ft."""
    places = (resources_dir().parent.parent / "bin" / "slurm-ft", DEFAULT_PREFIX / "bin" / "slurm-ft")
    found = next((path for path in places if os.access(path, os.X_OK)), None)
    if found is None:
        if not machine.roles.isdisjoint((Role.CONTROLLER, Role.NODE)):
            what = f"no slurm-ft at {places[0]} or {places[1]}: only hooks that are given SLURM_FT_BIN find it"
            yield warning(STAGE, what, "Install slurm_ft as docs/installation.md says")
        return
    said = _said_by(found)
    if said != f"slurm_ft {slurm_ft.__version__}":
        what = f"{found} --version says {said!r}, this is {slurm_ft.__version__}"
        yield fail(STAGE, what, "Install the same version everywhere")
        return
    package = Path(slurm_ft.__file__).parent
    why = trust.problem(found) or trust.problem(package) or trust.problem_below(package)
    shut = next((shut for path in (found, Path(sys.executable), package) if (shut := trust.closed(path))), "")
    if why:
        yield fail(STAGE, f"root runs {found}, but {why}", "chown root, chmod go-w")
    elif shut:
        what = f"users and SlurmUser cannot start {found}: {shut}"
        yield fail(STAGE, what, "Make the environment with /usr/bin/python3, in a place that is open, such as /opt")
    else:
        yield ok(STAGE, f"{found} starts without a PATH, for every user, and only root can change it")


def _said_by(program: Path) -> str:
    try:
        done = subprocess.run(
            [str(program), "--version"], env={}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout or done.stderr).strip()[:200]


def _hook(parameter: str, ours: Path, cluster: Cluster, role: Role) -> Iterator[Finding]:
    programs = [path for value in cluster.all_of(parameter) for path in _matching(value)]
    if not programs:
        missing = warning if parameter == "TaskProlog" else fail
        yield missing(STAGE, f"{parameter} is not set: {_without(parameter)}", f"{parameter}={ours} in slurm.conf")
        return
    owners = (0,) if role is Role.NODE else (0, ids(cluster.slurm_user)[0])
    for program in programs:
        why = trust.problem(program, owners) or ("" if os.access(program, os.X_OK) else f"{program} is not executable")
        if why:
            yield fail(
                STAGE, f"{parameter}={program}: {why}", "chown root, chmod 755: Slurm runs it as root or SlurmUser"
            )
            return
    if not any(_calls(program, ours) for program in programs):
        shown = ", ".join(map(str, programs))
        yield warning(STAGE, f"{parameter}={shown}: it does not name {ours.name}", f"Call {ours} from it")
        return
    yield _timed(parameter, ours)


def _matching(value: str) -> list[Path]:
    """Slurm takes a pattern of paths too."""
    path = Path(value)
    return sorted(path.parent.glob(path.name)) or [path]


def _without(parameter: str) -> str:
    return {
        "Prolog": "no attempt is marked in the kernel log",
        "TaskProlog": "jobs get no CHECKPOINT_VENDOR",
        "Epilog": "no node judges a failed job",
        "PrologSlurmctld": "a restart that Slurm made by itself goes unrecorded",
        "EpilogSlurmctld": "no job fails over",
    }[parameter]


def _calls(program: Path, ours: Path) -> bool:
    """Whether the program is our hook, or a script that names it."""
    if program.resolve() == ours.resolve():
        return True
    try:
        return ours.name.encode() in program.read_bytes()
    except OSError:
        return False


def _timed(parameter: str, ours: Path) -> Finding:
    """Our hook on the clean path, with its own run directory: a job that ended well and is nobody's."""
    with tempfile.TemporaryDirectory(prefix="slurm_ft-doctor-") as directory:
        try:
            times = [_run_once(ours, Path(directory)) for _ in range(RUNS)]
        except (OSError, subprocess.SubprocessError) as error:
            return fail(STAGE, f"{parameter}: {ours} does not run: {error}", "Run it by hand, and mend what it says")
    taken = statistics.median(times) * 1000
    what = f"{parameter}: {ours.name} in place, {taken:.1f} ms for a job that ended well"
    if taken > SLOW_MS:
        return warning(STAGE, what, "Is the machine overloaded, or the kernel log very large (dmesg --buffer-size)?")
    return ok(STAGE, what)


def _run_once(hook: Path, directory: Path) -> float:
    """Seconds. Raises what subprocess does."""
    variables = {
        "SLURM_JOB_ID": "0",
        "SLURM_JOB_GPUS": "0",
        "SLURM_JOB_EXIT_CODE2": "0:0",
        "SLURMD_NODENAME": "doctor",
        "SLURM_FT_BIN": NOTHING_DONE,
        "SLURM_FT_RUN_DIR": str(directory),
    }
    began = time.perf_counter()
    subprocess.run([str(hook)], env=variables, cwd="/", capture_output=True, timeout=TIMEOUT_S, check=True)
    return time.perf_counter() - began

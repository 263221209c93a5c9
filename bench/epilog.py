"""What the hooks cost a job that ended well, in milliseconds, beside `/bin/true` as the hook.

    python bench/epilog.py              # root; about a minute

A local Slurm cluster runs jobs whose hooks write down the environment that Slurm gives them. Then the real hook files
run in exactly these environments, by turns with /bin/true, both started by posix_spawn. A run that left the shell (some
other program wrote a driver's line into the kernel log just then) is dropped and counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import table

from slurm_ft.errors import SlurmFtError
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.lab.resources import resource
from slurm_ft.lab.spec import HOOKS

TARGET_MS = 5.0
CONTROL = "/bin/true"
PAUSE_S = 0.01  # between two lines when the kernel log is filled: others may still want to read theirs
CAPTURED = ("prolog", "epilog", "prolog_slurmctld", "epilog_slurmctld")  # those that run as root or SlurmUser
QUIET = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]

Environment = Mapping[str, str]


class CaseError(Exception):
    """A case did not do what it is there to measure."""


@dataclass(frozen=True, slots=True)
class Case:
    """One hook in one situation. `before` runs ahead of each measured run, unmeasured."""

    name: str
    hook: Path
    environment: Environment
    before: Callable[[], object] = lambda: None


@dataclass(slots=True)
class Times:
    """Milliseconds of the hook and of the control, pair by pair."""

    hook: list[float] = field(default_factory=list)
    control: list[float] = field(default_factory=list)
    dropped: int = 0


def spawn_ms(program: str, environment: Environment) -> float:
    """How long `program` takes. Raises CaseError if it does not end with 0."""
    start = time.perf_counter_ns()
    child = os.posix_spawn(program, [program], environment, file_actions=QUIET)
    _, status = os.waitpid(child, 0)
    took = (time.perf_counter_ns() - start) / 1e6
    if status:
        raise CaseError(f"{program} ended with {os.waitstatus_to_exitcode(status)}")
    return took


def capture_script(directory: Path, name: str) -> Path:
    """A hook that writes down its environment."""
    script = directory / name
    script.write_text(f'#!/bin/sh\nexec /usr/bin/env -0 >"{directory}/{name}.$SLURM_JOB_ID"\n')
    script.chmod(0o755)
    return script


def read_environment(path: Path) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in path.read_text().split("\0") if entry)
    return {name: value for name, _, value in pairs if name not in ("_", "PWD", "OLDPWD", "SHLVL")}


def captured(lab: Lab, directory: Path, exit_code: int, *options: str) -> dict[str, dict[str, str]]:
    """Run a job; returns the environments of its hooks, by the names of HOOKS."""
    job = lab.sbatch(f"#!/bin/sh\nexit {exit_code}\n", *options)
    lab.wait_job(job, "COMPLETED", "FAILED")
    paths = {name: directory / f"{name}.{job}" for name in CAPTURED}
    lab.wait_for(lambda: all(path.exists() for path in paths.values()), what=f"all hooks of job {job}")
    return {name: read_environment(path) for name, path in paths.items()}


def cases(lab: Lab, directory: Path, stand_in: Path) -> list[Case]:
    """What a job that ended well, or did not ask for failover, can meet; first the GPU job that ended well."""
    tagged = captured(lab, directory, 0, "--comment=[slurm_ft]", "--gres=gpu:1")
    plain = captured(lab, directory, 1)
    own = {"SLURM_FT_BIN": str(stand_in)}
    hook = {name: resource(file) for name, (_, file) in HOOKS.items()}
    prolog = {**tagged["prolog"], **own}

    def started() -> float:
        return spawn_ms(str(hook["prolog"]), prolog)

    return [
        Case("node_epilog: GPU job, 0:0", hook["epilog"], {**tagged["epilog"], **own}, started),
        Case("node_epilog: job without GPUs", hook["epilog"], {**plain["epilog"], **own}),
        Case("node_prolog: GPU job", hook["prolog"], prolog),
        Case("node_prolog: job without GPUs", hook["prolog"], {**plain["prolog"], **own}),
        Case("slurmctld_prolog: first start", hook["prolog_slurmctld"], {**tagged["prolog_slurmctld"], **own}),
        Case("slurmctld_epilog: no tag, 1:0", hook["epilog_slurmctld"], {**plain["epilog_slurmctld"], **own}),
        Case("slurmctld_epilog: tag, 0:0", hook["epilog_slurmctld"], {**tagged["epilog_slurmctld"], **own}),
    ]


def measure(case: Case, stand_in: Path, runs: int) -> Times:
    """Hook and control by turns, `runs` times. Raises CaseError when the hook keeps leaving its shell part."""
    times, called = Times(), stand_in.with_suffix(".called")
    while len(times.hook) < runs:
        case.before()
        control = spawn_ms(CONTROL, case.environment)
        hook = spawn_ms(str(case.hook), case.environment)
        if called.exists():
            called.unlink()
            times.dropped += 1
            if times.dropped > runs:
                raise CaseError(f"{case.name}: the hook calls slurm-ft; this is not the path of a job that ended well")
            continue
        times.control.append(control)
        times.hook.append(hook)
    return times


def kernel_log_kib() -> int:
    """How much text the kernel log holds."""
    return len(subprocess.run(["/usr/bin/dmesg"], capture_output=True, check=True).stdout) // 1024


def fill_kernel_log(lab: Lab) -> None:
    """Write ordinary lines until the ring buffer drops its oldest ones."""
    before, after = -1, kernel_log_kib()
    while after > before:
        before = after
        for number in range(100):
            lab.inject(f"slurm_ft: bench/epilog.py fills the kernel log, as a long uptime would: line {number}", 6)
            time.sleep(PAUSE_S)
        after = kernel_log_kib()


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def row(name: str, times: Times) -> list[str]:
    hook, control = statistics.median(times.hook), statistics.median(times.control)
    more, p95_more = hook - control, p95(times.hook) - p95(times.control)
    numbers = [f"{value:.2f}" for value in (control, hook, more, p95_more)]
    return [name, *numbers, f"<= {TARGET_MS:g}", table.verdict(more, TARGET_MS), str(times.dropped or "")]


def results(lab: Lab, directory: Path, runs: int) -> list[list[str]]:
    stand_in = directory / "slurm-ft"
    stand_in.write_text(f"#!/bin/sh\n: >{stand_in.with_suffix('.called')}\n")
    stand_in.chmod(0o755)
    gpu_job, *others = cases(lab, directory, stand_in)  # that one first: node_prolog fills the kernel log with markers
    found = row(f"{gpu_job.name}, kernel log {kernel_log_kib()} KiB", measure(gpu_job, stand_in, runs))
    rows = [row(case.name, measure(case, stand_in, runs)) for case in others]
    fill_kernel_log(lab)
    full = row(f"{gpu_job.name}, kernel log full, {kernel_log_kib()} KiB", measure(gpu_job, stand_in, runs))
    return [found, full, *rows]


def run(runs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="slurm_ft-bench-") as name:
        directory = Path(name)
        hooks = {hook: capture_script(directory, hook) for hook in CAPTURED}
        with Lab(LabSpec(nodes=1, hooks=hooks)) as lab:
            rows = results(lab, directory, runs)
            header = ["hook", "/bin/true", "hook", "more", "p95 more", "target", "", "dropped"]
            table.show(f"Cost of the hooks in ms, {runs} runs each (medians; p95: of both)", header, rows)
            print(f"\n{table.host(lab.slurm.version)}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the hooks' cost for jobs that ended well (root).")
    parser.add_argument("--runs", type=int, default=300, help="measured runs of each case (default: 300)")
    options = parser.parse_args()
    try:
        run(max(options.runs, 2))
    except (SlurmFtError, CaseError) as error:
        print(f"bench/epilog.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`slurm-ft demo`: a real training on a real Slurm cluster loses its GPU and finishes on another node.

`--refusal` shows the other half: the same training with a bug of its own is not retried. Both check what they show; the
exit code says whether all of it happened.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from slurm_ft import config
from slurm_ft.lab import Lab, LabSpec
from slurm_ft.lab.errors import LabError
from slurm_ft.lab.resources import resource
from slurm_ft.log_marks import BANNER
from slurm_ft.model import JobState
from slurm_ft.slurm.cli import CommandLine
from slurm_ft.status import render
from slurm_ft.status.story import story
from slurm_ft.status.view import JobView, views

STEPS = 60
SAVE_EVERY = 10
STEP_SECONDS = 0.15
TIMEOUT_S = 120.0
FAULT_FILE = "fault"
XID, XID_TEXT = 79, "GPU has fallen off the bus."
GOES_ON = (JobState.PENDING, JobState.RUNNING, JobState.FAILOVER_IN_PROGRESS)


@dataclass
class Show:
    """What is on stage, and what has been checked of it."""

    lab: Lab
    began: float = field(default_factory=time.monotonic)
    checks: list[tuple[bool, str]] = field(default_factory=list)

    def say(self, text: str) -> None:
        """One line of progress, with the seconds since the start."""
        print(f"[{time.monotonic() - self.began:6.1f} s] {text}", flush=True)

    def check(self, happened: object, what: str) -> None:
        """Remember whether something that was promised happened."""
        self.checks.append((bool(happened), what))

    @property
    def output(self) -> Path:
        """Where the training saves."""
        return self.lab.shared / "output"

    @property
    def log(self) -> str:
        """The job's one log."""
        return "".join(path.read_text(errors="replace") for path in self.lab.shared.glob("tiny-lm-*.log"))

    def view(self, job: int) -> JobView:
        """The job as `slurm-ft status` shows it."""
        path = self.lab.base / "etc" / "slurm_ft.yaml"
        settings = config.parse(path.read_text(), str(path))
        slurm = CommandLine.of(settings)
        return views(slurm.jobs((f"--jobs={job}",)), slurm.nodes(), settings)[0]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--refusal", action="store_true", help="show that a job with a bug of its own is not retried")
    parser.add_argument("--keep", action="store_true", help="leave the cluster's logs in place at the end")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; 0 if all that it promises happened."""
    with stage(keep=arguments.keep) as show:
        if arguments.refusal:
            refusal(show)
        else:
            failover(show)
    return _conclude(show)


@contextmanager
def stage(*, keep: bool) -> Iterator[Show]:
    """A cluster of three nodes, gone at the end with every process it started."""
    lab = Lab(LabSpec(nodes=3, gpus_per_node=2, keep=keep), lambda text: print(f"           {text}", flush=True))
    show = Show(lab)
    with lab:
        show.say(f"cluster is up: {', '.join(lab.nodes)}, two GPUs each; SLURM_CONF={lab.slurm_conf}")
        yield show
    show.check(not lab.leftovers(), "the cluster stopped, and every process it started is gone")
    show.say("cluster stopped" + (f"; its logs are in {lab.layout.log}" if keep else ""))


def failover(show: Show) -> None:
    """The job loses its GPU after a checkpoint, and finishes elsewhere."""
    lab = show.lab
    job = submit(show)
    bad = follow(show, job, lambda: sorted(show.output.glob("ckpt_2?.pth"))).job.nodes
    show.say(f"training runs on {bad} and has saved {newest(show)}")
    lab.inject_xid(bad, 0, XID, XID_TEXT)
    (lab.shared / FAULT_FILE).write_text(bad)
    fault = time.monotonic()
    show.say(f"fault injected: kernel log of {bad} says Xid {XID} for GPU {lab.pci(bad, 0)}; the training dies of it")
    again = follow(show, job, lambda: show.log.count(BANNER) > 1)
    show.say(f"running on {again.job.nodes}, {time.monotonic() - fault:.1f} s after the fault")
    end = follow(show, job, lambda: show.view(job).state not in GOES_ON)
    state, reason, _ = lab.node(bad)
    show.say("the job has ended; slurm-ft status:")
    present(show, end)
    # From the second attempt while it ran: a job seen COMPLETING may have no node any more.
    show.check(again.job.nodes not in ("", bad), f"it went to another node ({again.job.nodes} instead of {bad})")
    _check_failover(show, end, bad, (state, reason))


def _check_failover(show: Show, end: JobView, bad: str, drained: tuple[str, str]) -> None:
    banners = [line for line in show.log.splitlines() if line.startswith(BANNER)]
    resumed = banners[-1].partition("resume step ")[2].split()[:1] if banners else []
    show.check(end.state is JobState.COMPLETED, f"the same job id completed (state {end.state.value})")
    show.check(
        drained[0].startswith("drain") and f"xid{XID}" in drained[1], f"{bad} is drained with the cause as Reason"
    )
    show.check(end.failovers.count == 1, "the failover is counted once in the job's comment")
    show.check(bad in end.failovers.excluded, f"{bad} is excluded from the job")
    show.check(len(banners) == 2, "one log holds both attempts, each opened by its banner")
    show.check(resumed and int(resumed[0]) >= 2 * SAVE_EVERY, f"resumed from a checkpoint (step {' '.join(resumed)})")
    show.check(f"training complete: {STEPS} steps" in show.log, f"the training made all of its {STEPS} steps")


def refusal(show: Show) -> None:
    """The training has a bug: no drain, no requeue."""
    job = submit(show, "--fail-at", "25", "--fail-as", "python")
    end = follow(show, job, lambda: show.view(job).state not in GOES_ON)
    show.say("the job has ended; slurm-ft status:")
    present(show, end)
    states = {node: show.lab.node(node)[0] for node in show.lab.nodes}
    show.check(end.job.state == "FAILED", f"the job ended FAILED in Slurm ({end.job.state})")
    show.check(end.job.restarts == 0, "it was not requeued")
    show.check(not any(state.startswith("drain") for state in states.values()), "no node was drained")
    show.check(end.state is JobState.INTERNAL_ERROR, f"the status shows `{end.state.value}`")
    show.check("ValueError" in show.log, "the log holds the program's own error")


def submit(show: Show, *options: str) -> int:
    """Submit the training from the shipped template, as an ordinary user."""
    lab = show.lab
    script = lab.shared / "train_tiny_lm.py"
    script.write_bytes(resource("examples/train_tiny_lm.py").read_bytes())
    script.chmod(0o644)
    command = (sys.executable, str(script), f"--steps={STEPS}", f"--save-every={SAVE_EVERY}")
    pace = (f"--step-seconds={STEP_SECONDS}", f"--fault-file={lab.shared / FAULT_FILE}")
    environment = {
        "OUTPUT_DIR": str(show.output),
        "SLURM_FT_BIN": str(lab.command),
        config.CONFIG_VARIABLE: str(lab.base / "etc" / "slurm_ft.yaml"),
    }
    template = resource("sbatch_templates/python.sbatch")
    job = lab.sbatch(template, "--job-name=tiny-lm", arguments=(*command, *pace, *options), env=environment)
    show.say(
        f"submitted job {job} as {lab.spec.user}: sbatch_templates/{template.name} {script.name} {' '.join(options)}"
    )
    return job


def follow(show: Show, job: int, reached: Callable[[], object]) -> JobView:
    """Wait until something is reached, telling each change of the job's state and each of its steps."""
    deadline, told = time.monotonic() + TIMEOUT_S, ""
    while not reached():
        text = _progress(show, job)
        if text != told:
            show.say(text)
            told = text
        if time.monotonic() > deadline:
            raise LabError(f"job {job} made no progress within {TIMEOUT_S:g} s ({text})", f"Its log:\n{show.log}")
        time.sleep(0.2)
    return show.view(job)


def _progress(show: Show, job: int) -> str:
    view = show.view(job)
    text = f"job {job}: {view.state.value}" + (f" on {view.job.nodes}" if view.job.nodes else "")
    steps = [line for line in show.log.splitlines() if _is_tenth_step(line)]
    return f"{text} · {steps[-1]}" if steps and view.state is JobState.RUNNING else text


def _is_tenth_step(line: str) -> bool:
    return re.match(r"step \d*0/", line) is not None


def newest(show: Show) -> str:
    """The name of the newest checkpoint."""
    return max(show.output.glob("ckpt_*.pth"), key=lambda path: int(path.stem.partition("_")[2])).name


def present(show: Show, view: JobView) -> None:
    """The status table, the job's story, and the lines of its log that matter."""
    now = time.time()
    rows = "\n".join(render.table([view], now).lines)
    print(f"\n{rows}\n\n{story(view, now)}\n\nthe job's log, shortened:")
    kept = [line for line in show.log.splitlines() if not line.startswith("step ") or _is_tenth_step(line)]
    print("\n".join(f"  | {line}" for line in kept) + "\n")


def _conclude(show: Show) -> int:
    for happened, what in show.checks:
        print(f"  {'ok    ' if happened else 'FAILED'} {what}")
    failed = sum(not happened for happened, _ in show.checks)
    print(f"demo: {len(show.checks) - failed} passed, {failed} failed, {time.monotonic() - show.began:.0f} s")
    return 1 if failed else 0
